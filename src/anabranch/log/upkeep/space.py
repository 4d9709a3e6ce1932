"""What the files of a store hold: bytes that streams view, and bytes that no stream views any more, with the reason why
these are still kept and until when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.blobs import keys
from anabranch.blobs.layout import HEADER_BYTES, messages_begin
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import BlobRow, Catalog, Lease, Reading
from anabranch.catalog.state.ephemeral import EPHEMERAL
from anabranch.catalog.state.transaction import FLUSH, OPEN, TRANSACTION, flushes_of
from anabranch.core.compaction import ARROW, GONE
from anabranch.errors import CorruptStore
from anabranch.log.parquet.footer import read_footer
from anabranch.log.recovery.manifest import newest_at
from anabranch.model.ids import BlobId, LogId, Micros, StreamId
from anabranch.model.stream import Extent, Span
from anabranch.runtime.ports import Runtime

_INDEX_BYTES: Final = 1024  # the assumed size of a tier-1 blob's header, which is not read


class PinnedBytes(NamedTuple):
    """Bytes of `files` files that can't be freed because of `reason`; `by` names the object that pins them. `until` is
    when the reason ends by itself, None if it does not: then `ends` says what ends it. `live`: some stream still views
    the bytes."""

    reason: str
    by: str
    bytes: int
    files: int
    until: Micros | None
    ends: str
    live: bool = False


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """The bytes of a store's files. `total` is the sum of `live` (bytes that streams view), `unused` (bytes of `pinned`
    that nothing views) and `manifests`. Bytes inlined in the catalog, and files that were attached, do not count."""

    total: int
    live: int
    manifests: int
    pinned: tuple[PinnedBytes, ...]

    @property
    def unused(self) -> int:
        """Bytes that nothing views any more."""
        return sum(each.bytes for each in self.pinned if not each.live)


class _Reason(NamedTuple):
    reason: str
    by: str
    until: Micros | None
    ends: str
    live: bool = False


def measure_space(catalog: Catalog, blobs: Blobs, runtime: Runtime) -> SpaceReport:
    """Looks at all files and extents, and at the footers of Parquet files; reads no event. Raises StoreUnavailable and
    its subclasses, CorruptCatalog."""
    return _Space(catalog, blobs, runtime).report()


class _Space:
    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._age = runtime.settings.horizon_us
        self._now = runtime.clock.now()
        self._manifest = newest_at(blobs)
        self._sizes: dict[_Reason, int] = defaultdict(int)
        self._files: dict[_Reason, int] = defaultdict(int)
        self._live = 0
        self._spans: dict[LogId, Sequence[tuple[StreamId, Span]]] = {}
        self._names: dict[StreamId, str] = {}

    def report(self) -> SpaceReport:
        """The report."""
        with self._catalog.reading() as snapshot:
            self._leases = [lease for lease in snapshot.leases() if lease.expires_at > self._now]
            self._ephemeral_rows = dict(snapshot.states(EPHEMERAL))
            self._flushed = self._flushed_keys(snapshot)
        listed = self._measure_listed()
        total = listed + self._measure_uploads()
        manifests = sum(info.size for info in self._blobs.list(keys.MANIFESTS))
        pinned = [
            PinnedBytes(each.reason, each.by, size, self._files[each], each.until, each.ends, each.live)
            for each, size in self._sizes.items()
        ]
        pinned.sort(key=lambda each: (-each.bytes, each))
        return SpaceReport(total + manifests, self._live, manifests, tuple(pinned))

    def _add(self, reason: _Reason, size: int) -> None:
        if size > 0:
            self._sizes[reason] += size
            self._files[reason] += 1

    # files in the catalog

    def _measure_listed(self) -> int:
        after, total = BlobId(0), 0
        while True:
            with self._catalog.reading() as snapshot:
                page = snapshot.blobs_after(after, limits.COLLECT_PAGE_ROWS)
                for row in page:
                    if not keys.is_attached(row.key):
                        total += row.size
                        self._add_file(snapshot, row)
            self._spans.clear()
            if not page:
                return total
            after = page[-1].id

    def _add_file(self, snapshot: Reading, row: BlobRow) -> None:
        extents = [extent for extent in snapshot.extents_of_blob(row.id) if extent.encoding != GONE]
        if not extents:
            self._add(self._unused_reason(row), row.size)
            return
        viewed: dict[_Reason | None, int] = defaultdict(int)
        users: set[StreamId] = set()
        lost = self._removed_bytes(row, extents)
        for extent, size in zip(extents, _shares(extents, row.size - lost), strict=True):
            streams = self._viewers(snapshot, extent)
            users |= streams
            viewed[self._holder(snapshot, extent, streams) if streams else _NOT_COLLECTED] += size
        if lost and users:
            by = self._text(snapshot, users)
            viewed[_Reason("shared file", by, None, "these streams are deleted or truncated")] += lost
        pinned = 0
        for reason, size in viewed.items():
            if reason is not None:
                self._add(reason, size)
                pinned += 0 if reason.live else size
        self._live += row.size - pinned

    def _viewers(self, snapshot: Reading, extent: Extent) -> set[StreamId]:
        spans = self._spans.get(extent.log)
        if spans is None:
            spans = self._spans[extent.log] = snapshot.spans_of_log(extent.log)
        return {
            stream
            for stream, span in spans
            if span.start < extent.stop and (span.stop is None or span.stop > extent.start)
        }

    def _holder(self, snapshot: Reading, extent: Extent, streams: set[StreamId]) -> _Reason | None:
        """Why the bytes are still there although the stream they were written to does not view them; None if it
        does."""
        owner = self._owner(snapshot, extent.log)
        if owner in streams:
            return None
        jobs = [name for stream in streams if "/_job." in (name := self._name(snapshot, stream))]
        if len(jobs) == len(streams):
            job = jobs[0].partition("/_job.")[2].partition(".")[0]
            return _Reason("job", job, None, "the job ends", live=True)
        if streams <= self._ephemeral_rows.keys():
            until = max(
                (h.until for stream in streams for h in self._ephemeral_rows[stream].holders), default=self._now
            )
            return _Reason("ephemeral stream", self._text(snapshot, streams), until, "its holders let go", live=True)
        by = self._text(snapshot, streams)
        return _Reason("other streams", by, None, "these streams are deleted or truncated", live=True)

    def _owner(self, snapshot: Reading, log: LogId) -> StreamId | None:
        found = snapshot.logs([log]).get(log)
        return None if found is None else found.stream

    def _name(self, snapshot: Reading, stream: StreamId) -> str:
        if stream not in self._names:
            info = snapshot.stream(stream)
            self._names[stream] = f"{stream:016x}" if info is None else str(info.name)
        return self._names[stream]

    def _text(self, snapshot: Reading, streams: set[StreamId]) -> str:
        names = sorted(self._name(snapshot, stream) for stream in streams)
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more

    def _removed_bytes(self, row: BlobRow, extents: Sequence[Extent]) -> int:
        """About how many bytes of a file belong to events whose extents were removed already."""
        # An encrypted footer, for example, can't be read: then 0.
        with suppress(CorruptStore, pa.ArrowException, OSError):
            if row.encoding == ARROW:
                messages = {extent.location.offset: extent.location.length for extent in extents}
                rest = row.size - sum(-(-length // 64) * 64 for length in messages.values())
                if rest <= _INDEX_BYTES:
                    return 0
                return max(rest - messages_begin(row.key, self._blobs.get(row.key, 0, HEADER_BYTES)), 0)
            rows = int(read_footer(self._blobs, row.key).num_rows)
            return row.size * max(rows - sum(extent.stop - extent.start for extent in extents), 0) // max(rows, 1)
        return 0

    def _unused_reason(self, row: BlobRow) -> _Reason:
        """The reason why a file that no extent refers to is still kept."""
        if row.dead_at is None:
            return _NOT_COLLECTED
        if holding := [lease for lease in self._leases if lease.begun_at <= row.dead_at]:
            return _by_lease(max(holding, key=lambda lease: lease.expires_at))
        protects = self._manifest is not None and self._manifest >= self._now - limits.MANIFEST_PROTECTS_US
        if protects and self._manifest is not None and self._manifest - limits.CLOCKS_DIFFER_US <= row.dead_at:
            until = Micros(self._manifest + limits.MANIFEST_PROTECTS_US)
            return _Reason("manifest", "the newest manifest", until, "or once a newer manifest is written")
        return _Reason("grace time", "", Micros(row.dead_at + self._age), "readers that planned before have ended")

    # files that the catalog does not list

    def _measure_uploads(self) -> int:
        total = 0
        for prefix in keys.PREFIXES:
            files = self._blobs.list(prefix)
            while page := list(islice(files, limits.COLLECT_PAGE_ROWS)):
                with self._catalog.reading() as snapshot:
                    listed = snapshot.blob_keys([file.key for file in page])
                for file in page:
                    if file.key not in listed:
                        total += file.size
                        self._add(self._upload_reason(file.key), file.size)
        return total

    def _upload_reason(self, key: str) -> _Reason:
        if key in self._flushed:
            return self._flushed[key]
        begun_at = keys.begun_at(key)
        if begun_at is None:
            return _Reason("foreign file", "", None, "it is removed manually")
        if holding := [lease for lease in self._leases if lease.begun_at <= begun_at]:
            return _by_lease(max(holding, key=lambda lease: lease.expires_at))
        return _Reason("upload", "", Micros(begun_at + self._age), "it is committed")

    def _flushed_keys(self, snapshot: Reading) -> dict[str, _Reason]:
        """The files of open transactions."""
        return dict(self._flushes(snapshot))

    def _flushes(self, snapshot: Reading) -> Iterator[tuple[str, _Reason]]:
        for ident, row in snapshot.states_found(TRANSACTION, OPEN):
            reason = _Reason("transaction", ident, row.info.expires_at, "it commits or is aborted")
            for _, flush in snapshot.states(FLUSH, prefix=flushes_of(ident)):
                for batches in flush.batches.values():
                    yield from ((batch.blob.key, reason) for batch in batches)


_NOT_COLLECTED: Final = _Reason("not collected yet", "", None, "collect has run, and the grace time has passed")


def _by_lease(lease: Lease) -> _Reason:
    return _Reason("lease", f"{lease.kind} {lease.holder}".strip(), lease.expires_at, "unless it is renewed")


def _shares(extents: Sequence[Extent], size: int) -> list[int]:
    """Divides a file's bytes among its extents: by the lengths of their messages, or in a Parquet file by their numbers
    of events."""
    weights = [extent.location.length or extent.stop - extent.start for extent in extents]
    total = max(sum(weights), 1)
    edges = [size * before // total for before in accumulate(weights, initial=0)]
    return [after - before for before, after in pairwise(edges)]
