"""Rebuilds a catalog from the newest intact manifest among the store's own blobs.

What was acknowledged after that manifest is not in it. Blobs that may hold such events are reported, never adopted:
only the lost catalog knew whether and where they were committed. They are kept until `release_reported` is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch import limits
from anabranch.blobs import keys, layout
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.state.store import LAST, REBUILT, Rebuilt, is_store_id
from anabranch.core.compaction import GONE
from anabranch.core.redact import shown_address
from anabranch.errors import AnabranchError, BlobMissing, CorruptBlob, CorruptStore, InvalidArgument, NotFound
from anabranch.log.attachments import unconfirmed
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.manifest import Manifest
from anabranch.log.recovery.reload import reload
from anabranch.model.ids import LogId, Micros, StreamId, WriterId
from anabranch.runtime.ports import Runtime

# What happened after the manifest and is in no blob, so that it can't be rebuilt.
UNKNOWN: Final = (
    "commits small enough to be carried by the catalog (64 KiB, unless set otherwise): their events are lost",
    "streams and scopes created, scaled, sealed, truncated, renamed or deleted: they are as they were before",
    "the progress and fences of writers: one that continues with later sequence numbers is refused as out of sequence",
    "offsets assigned since the manifest: they are assigned again, to other events",
    "results and checkpoints of pipelines: if a source lost events, start the pipeline over with --from",
)


@dataclass(frozen=True, slots=True)
class UnlistedBlob:
    """A blob that the manifest does not name, and that may hold `events` acknowledged after it. `streams` are the
    streams of its logs, as far as the manifest knows them; `note` is additional information."""

    key: str
    size: int
    begun_at: Micros | None
    events: int
    streams: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    note: str = ""


@dataclass(slots=True)
class RebuildReport:
    """The result of a rebuild. `damaged`: newer manifests that could not be used, by folder. `broken`: blobs that the
    manifest names and that are missing or changed, by key. `unknown`: what can't be recovered or determined.
    `unconfirmed`: places of attached files, which are not read until they are confirmed."""

    manifest: str
    taken_at: Micros
    streams: int
    events: int
    blobs: int
    damaged: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    newer: list[UnlistedBlob] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unconfirmed: list[str] = field(default_factory=list)


def rebuild(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    *,
    wipe: bool = False,
    store: str | None = None,
    progress: ProgressCallback = no_progress,
) -> RebuildReport:
    """Fills an empty catalog (or any, with `wipe`) from the newest intact manifest in `blobs`, in one transaction.
    `store` is the id of the store whose manifests count; it must be given if there are manifests of several.

    Writers are safe: a batch that the manifest contains is recognised as a duplicate, a commit begun before now is
    refused, and ids are not assigned twice. `progress` is called with rows and with blobs, each of which is read.
    Raises NotFound if there is no intact manifest, InvalidArgument if there are manifests of several stores,
    AlreadyExists, StoreUnavailable and its subclasses; InvalidArgument also if `store` is not the id of a store.
    """
    if store is not None and not is_store_id(store):
        raise InvalidArgument(f"expected the id of a store, 32 hex digits, got {store!r:.100}")
    store = store or _only_store(blobs)
    damaged: dict[str, str] = {}
    now = runtime.clock.now()
    # A blob may have been begun by a process whose clock is ahead of this one.
    until = now + limits.CLOCKS_DIFFER_US
    for manifest in manifests.intact(blobs, damaged, store=store):
        note = Rebuilt(manifest.folder, manifest.horizon, Micros(until))
        try:
            reload(catalog, blobs, manifest, runtime, wipe=wipe, unused=True, note=note, store=store, progress=progress)
            break
        except (BlobMissing, CorruptBlob) as exc:  # its rows contradict each other; the catalog is as before
            damaged[manifest.folder] = str(exc)
    else:
        why = "".join(f"; {text}" for text in damaged.values())
        raise NotFound(f"there is no manifest to rebuild the catalog from{why}")
    report = RebuildReport(manifest.folder, manifest.taken_at, manifest.rows("streams"), 0, 0, damaged)
    report.events = sum(
        row["stop"] - row["start"] for row in manifests.rows(blobs, manifest, "extents") if row["encoding"] != GONE
    )
    with catalog.reading() as snapshot:
        report.unconfirmed = list(map(shown_address, unconfirmed(snapshot)))
        _check_blobs(report, manifest, blobs, snapshot, progress)
    report.unknown = list(UNKNOWN)
    return report


def _only_store(blobs: Blobs) -> str | None:
    """The store whose manifests are in `blobs`; None if no manifest names its store. Raises InvalidArgument if there
    are several."""
    found = list(dict.fromkeys(manifests.stores_of(blobs)))
    if len(found) > 1:
        raise InvalidArgument(
            f"there are manifests of several stores, {', '.join(found)}: choose the one to rebuild with --store-id"
        )
    return found[0] if found else None


def release_reported(catalog: Catalog) -> bool:
    """Lets the collector remove the blobs that the last rebuild reported; returns False if there was no rebuild."""
    with catalog.writing() as txn:
        if txn.state(REBUILT, LAST) is None:
            return False
        txn.drop_state(REBUILT, LAST)
    return True


def reported_times(snapshot: Reading) -> range:
    """The range of `begun_at` times of blobs that a rebuild has reported and that `release_reported` has not
    released."""
    found = snapshot.state(REBUILT, LAST)
    return range(0) if found is None else range(found.start, found.end + 1)


def _check_blobs(
    report: RebuildReport, manifest: Manifest, blobs: Blobs, snapshot: Reading, progress: ProgressCallback
) -> None:
    rows = manifests.referenced_blobs(blobs, manifest, unused=True)
    for row, there in manifests.join_by_key(rows, manifests.list_blobs(blobs)):
        if row is None:
            assert there is not None
            found = _newer(blobs, there.key, there.size, snapshot)
            # A blob that was begun before the manifest's horizon could not be committed after the manifest.
            if found is not None and (found.begun_at or 0) >= manifest.horizon:
                report.newer.append(found)
            continue
        if row["checksum"] is None:
            continue  # no extent is in it
        report.blobs += 1
        try:
            if there is None:
                report.broken[row["key"]] = "it is missing"
            elif there.size != row["size"]:
                report.broken[row["key"]] = f"it holds {there.size} bytes, not {row['size']}"
            else:
                manifests.verify(row, blobs.get(row["key"]))
        except CorruptStore as exc:
            report.broken[row["key"]] = str(exc)
        progress("blobs", report.blobs, manifest.rows("blobs"))


def _newer(blobs: Blobs, key: str, size: int, snapshot: Reading) -> UnlistedBlob | None:
    """Describes a blob from its own index; None if the manifest has everything that it holds."""
    begun_at = keys.begun_at(key)
    try:
        parts = list(_parts(key, blobs))
    except (AnabranchError, KeyError, TypeError, ValueError, OSError) as exc:
        return UnlistedBlob(
            key, size, begun_at, 0, note=f"it can't be read, so its writing was cut off or it is damaged: {exc}"
        )
    if any(part["log"] is None for part in parts):
        events = sum(int(part["count"]) for part in parts)
        owners = tuple(str(part["writer"]) for part in parts if part["writer"] is not None)
        staged = "staged by a job or brought by an import, which may not have ended"
        note = "a large event, which may not have been committed" if owners else staged
        return UnlistedBlob(key, size, begun_at, events, (), owners, note)
    fresh = [part for part in parts if not _is_known(part, snapshot)]
    if not fresh:
        return None
    streams = dict.fromkeys(name for part in fresh for name in _viewers(LogId(part["log"]), snapshot))
    writers = dict.fromkeys(str(part["writer"]) for part in fresh if part["writer"] is not None)
    strange = sum(LogId(part["log"]) not in snapshot.logs([LogId(part["log"])]) for part in fresh)
    note = f"{strange} of its parts belong to segments that the manifest does not know" if strange else ""
    return UnlistedBlob(
        key, size, begun_at, sum(int(part["count"]) for part in fresh), tuple(streams), tuple(writers), note
    )


def _parts(key: str, blobs: Blobs) -> Iterator[Mapping[str, Any]]:
    """`log`, `writer`, `first` and `count` of each part; `log` is None if unknown."""
    data = blobs.get(key)
    if key.endswith(".parquet"):
        for part in ParquetReader(key, data).parts():
            yield {"log": part["log"], "writer": None, "stop": part["stop"], "count": part["stop"] - part["start"]}
        return
    index = layout.read_index(key, data)
    for part in index["parts"]:
        staged = {"log": None, "writer": part.get("writer"), "count": part.get("count", 0)}
        yield staged if index.get("staged") else part


def _is_known(part: Mapping[str, Any], snapshot: Reading) -> bool:
    """True if the manifest's catalog contains what a part holds, or has refused it."""
    log = LogId(part["log"])
    state = snapshot.logs([log]).get(log)
    if state is None:
        return False
    if "stop" in part:  # compacted: known if the log has these positions
        return bool(part["stop"] <= state.length)
    if state.sealed:
        return True  # appends that are not in it were refused
    if part.get("writer") is None:
        return False
    progress = snapshot.progress(log, WriterId(part["writer"]))
    return progress is not None and part["first"] + part["count"] <= progress.next


def _viewers(log: LogId, snapshot: Reading) -> Iterator[str]:
    seen: set[StreamId] = set()
    for stream, _ in snapshot.spans_of_log(log):
        if stream not in seen:
            seen.add(stream)
            info = snapshot.stream(stream)
            yield str(info.name) if info else f"{stream:016x}"
