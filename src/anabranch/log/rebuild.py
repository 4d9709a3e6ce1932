"""A catalog made anew from the newest sound manifest among the store's own blobs.

What was acknowledged after that manifest is not in it. Blobs that may belong there are reported, never adopted: whether
they were committed, and where, only the lost catalog knew. They are kept until `forget` is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch import limits
from anabranch.blobs import keys, layout
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Checkpointed, Reading
from anabranch.core.compaction import GONE
from anabranch.errors import AnabranchError, CorruptStore, NotFound
from anabranch.log import manifest as manifests
from anabranch.log.manifest import Manifest
from anabranch.log.parquet import ParquetReader
from anabranch.log.reload import KIND, NAME, reload
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import LogId, Micros, StreamId, WriterId
from anabranch.runtime.ports import Runtime

# What no manifest and no blob tells of the time after the manifest.
UNKNOWN: Final = (
    "commits small enough to be carried by the catalog (64 KiB, unless set otherwise): their events are lost",
    "streams and scopes created, scaled, sealed, truncated, renamed or deleted: they are as they were before",
    "the progress and fences of writers: who goes on under later sequence numbers is refused as out of sequence",
    "offsets given after the ends that the manifest knows: they are given again, to other events",
    "what pipelines published and noted: begin them anew with --from where their sources went back",
)


@dataclass(frozen=True, slots=True)
class Newer:
    """A blob that the manifest does not name, and that may hold `events` acknowledged after it. `streams` are those of
    its logs that the manifest knows; `note` says what else can be told."""

    key: str
    size: int
    begun_at: Micros | None
    events: int
    streams: tuple[str, ...] = ()
    writers: tuple[str, ...] = ()
    note: str = ""


@dataclass(slots=True)
class RebuildReport:
    """What a rebuild found. `damaged` are newer manifests that could not be used, by folder; `broken` the blobs that the
    manifest names and that are missing or changed, by key; `unknown` what nobody can tell any more."""

    manifest: str
    taken_at: Micros
    streams: int
    events: int
    blobs: int
    damaged: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    newer: list[Newer] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def rebuild(
    catalog: Catalog, blobs: Blobs, runtime: Runtime, *, wipe: bool = False, progress: Watch = silent
) -> RebuildReport:
    """Fill an empty catalog (or any, with `wipe`) from the newest sound manifest in `blobs`, in one transaction.

    Writers are safe in it: a batch that the manifest has is told from a new one, a commit begun before now is refused,
    and ids are not given twice. `progress` hears of rows and of blobs, each of which is read. Raises NotFound where
    there is no sound manifest, AlreadyExists, StoreUnavailable and its kind.
    """
    manifest, damaged = manifests.newest(blobs)
    if manifest is None:
        why = "".join(f"; {text}" for text in damaged.values())
        raise NotFound(f"there is no manifest to rebuild the catalog from{why}")
    now = runtime.clock.now()
    # A blob may have been begun by a clock that is ahead of this one.
    until = now + limits.CLOCKS_DIFFER_US
    note = Checkpointed(KIND, NAME, {"manifest": manifest.folder, "from": manifest.horizon, "to": until})
    reload(catalog, blobs, manifest, runtime, wipe=wipe, unused=True, note=note, progress=progress)
    report = RebuildReport(manifest.folder, manifest.taken_at, manifest.rows("streams"), 0, 0, damaged)
    report.events = sum(
        row["stop"] - row["start"] for row in manifests.rows(blobs, manifest, "extents") if row["encoding"] != GONE
    )
    with catalog.reading() as snapshot:
        _look_at_blobs(report, manifest, blobs, snapshot, progress)
    report.unknown = list(UNKNOWN)
    return report


def forget(catalog: Catalog) -> bool:
    """Let the collector have the blobs that the last rebuild reported; False where there was none."""
    with catalog.writing() as txn:
        if txn.piece(KIND, NAME) is None:
            return False
        txn.drop_piece(KIND, NAME)
    return True


def kept(snapshot: Reading) -> range:
    """The times of beginning of blobs that a rebuild has reported and nobody has decided on."""
    piece = snapshot.piece(KIND, NAME)
    return range(0) if piece is None else range(int(str(piece.value["from"])), int(str(piece.value["to"])) + 1)


def _look_at_blobs(report: RebuildReport, manifest: Manifest, blobs: Blobs, snapshot: Reading, progress: Watch) -> None:
    rows = manifests.named(blobs, manifest, unused=True)
    for row, there in manifests.beside(rows, manifests.listed(blobs)):
        if row is None:
            assert there is not None
            found = _newer(blobs, there.key, there.size, snapshot)
            # One that was begun before the manifest's horizon could not be committed after it.
            if found is not None and (found.begun_at or 0) >= manifest.horizon:
                report.newer.append(found)
            continue
        if row["checksum"] is None:
            continue  # nothing lies in it
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


def _newer(blobs: Blobs, key: str, size: int, snapshot: Reading) -> Newer | None:
    """What a blob says of itself; None where all it holds is known to the manifest."""
    begun_at = keys.begun_at(key)
    try:
        parts = list(_parts(key, blobs))
    except (AnabranchError, KeyError, TypeError, ValueError, OSError) as exc:
        return Newer(
            key, size, begun_at, 0, note=f"it can't be read, so its writing was cut off or it is damaged: {exc}"
        )
    if any(part["log"] is None for part in parts):
        events = sum(int(part["count"]) for part in parts)
        owners = tuple(str(part["writer"]) for part in parts if part["writer"] is not None)
        staged = "staged by a job or brought by an import, which may not have ended"
        note = "a large event, which may not have been committed" if owners else staged
        return Newer(key, size, begun_at, events, (), owners, note)
    fresh = [part for part in parts if not _is_known(part, snapshot)]
    if not fresh:
        return None
    streams = dict.fromkeys(name for part in fresh for name in _viewers(LogId(part["log"]), snapshot))
    writers = dict.fromkeys(str(part["writer"]) for part in fresh if part["writer"] is not None)
    strange = sum(LogId(part["log"]) not in snapshot.logs([LogId(part["log"])]) for part in fresh)
    note = f"{strange} of its parts belong to segments that the manifest does not know" if strange else ""
    return Newer(key, size, begun_at, sum(int(part["count"]) for part in fresh), tuple(streams), tuple(writers), note)


def _parts(key: str, blobs: Blobs) -> Iterator[Mapping[str, Any]]:
    """`log`, `writer`, `first` and `count` of each part; `log` None where it is not known."""
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
    """True if the manifest's catalog has what a part holds, or has refused it."""
    log = LogId(part["log"])
    state = snapshot.logs([log]).get(log)
    if state is None:
        return False
    if "stop" in part:  # compacted: of positions that the log has
        return bool(part["stop"] <= state.length)
    if state.sealed:
        return True  # so whatever was not in it then was refused
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
