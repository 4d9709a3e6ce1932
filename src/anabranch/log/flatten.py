"""Flattening: short spans side by side in a segment become one log, so that a copy of a copy of a copy is as cheap to
read as the first. Offsets, append times and bytes stay what they were.

A file with the rows is durable before one transaction gives the segment its new span, on condition that its spans still
are those that were read. Whatever other streams view of the same bytes follows, a stream at a time: the rows are written
once for all generations. What is cut off in between leaves spans that are as good as they were, and a log that nothing
views, which is collected. Readers whose plans are older plan again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.core.compaction import GONE, PARQUET
from anabranch.core.flatten import FlattenPolicy, Moved, moves, remapped, runs
from anabranch.errors import CorruptStore
from anabranch.log.lease import Hold
from anabranch.log.parquet import ParquetBuilder, WrittenFile
from anabranch.log.sizes import segment_bytes
from anabranch.log.sources import Sources
from anabranch.log.watch import Watch, silent
from anabranch.model.append import Bounds, LogState, Place
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.stream import Extent, Span, StreamView
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class FlattenReport:
    """So many `files` replaced `spans` by fewer; `lost` counts runs that another client changed meanwhile, `skipped`
    says of what could not be read or stored why."""

    files: int = 0
    events: int = 0
    spans: int = 0
    lost: int = 0
    skipped: tuple[str, ...] = ()


def flatten(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    *,
    stream: StreamId | None = None,
    policy: FlattenPolicy | None = None,
    progress: Watch = silent,
) -> FlattenReport:
    """Rewrite what is worth it (see `FlattenPolicy`) in one stream, or in all, those with most spans first. Safe beside
    everything else. Memory: one file. `progress` hears of segments. Raises StoreUnavailable and its kind."""
    return _Flattening(catalog, blobs, runtime, policy or FlattenPolicy(), progress).run(stream)


class _Flattening:
    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, policy: FlattenPolicy, progress: Watch
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._policy = policy
        self._progress = progress
        self._report = FlattenReport()

    def run(self, stream: StreamId | None) -> FlattenReport:
        seen: set[tuple[StreamId, SegmentId]] = set()
        while True:
            with self._catalog.reading() as snapshot:
                found = snapshot.fragmented(self._policy.spans_min, len(seen) + limits.FLATTEN_PAGE)
            fresh = [each for each in found if each not in seen]
            seen.update(fresh)
            for done, (each, segment) in enumerate(fresh, 1):
                if stream in (None, each):
                    self._segment(each, segment)
                self._progress("segments", len(seen) - len(fresh) + done, len(seen))
            if not fresh:
                return self._report

    def _segment(self, stream: StreamId, segment: SegmentId) -> None:
        with self._catalog.reading() as snapshot:
            view = snapshot.view(stream)
            if view is None or segment not in view.segments:  # gone since
                return
            chosen = runs(view.spans.get(segment, ()), lambda span: _weight(snapshot, view, span), self._policy)
            chosen = [run for run in chosen if any(span.start != span.stop for span in run)]
            weights = [sum(_weight(snapshot, view, span) for span in run) for run in chosen]
        for run, weight in zip(chosen, weights, strict=True):
            moved = moves(run)
            log = self._rewrite(view, run, weight)
            if log is not None:
                for viewer in self._viewers(moved) - {stream}:
                    self._follow(viewer, moved, log)

    # one run

    def _rewrite(self, view: StreamView, run: Sequence[Span], weight: int) -> LogId | None:
        stream, columns = view.info.id, view.info.schema.columns
        with Hold(self._catalog, self._runtime, "compact", f"{len(run)} span(s)") as hold:
            log = self._new_log(stream, hold)
            file = _File(self._blobs, self._runtime, columns, history_key(hold.begun_at, token(self._runtime.ids)))
            try:
                file.begin(stream, log, view.info.schema_version)
                for extent, own in self._extents(view, run):
                    file.add(extent, own)
                    hold.renew()
            except (CorruptStore, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as exc:
                self._skip(f"segment {run[0].segment} of stream {stream:016x}: {exc}")
                return None
            written = file.finish()
            self._blobs.put(file.key, [written.data])
            if not self._publish(view, run, log, file, written, weight, hold):
                self._blobs.delete(file.key)  # nobody has ever heard of it
                self._report = replace(self._report, lost=self._report.lost + 1)
                return None
        before = self._report
        self._report = replace(
            before, files=before.files + 1, events=before.events + written.rows, spans=before.spans + len(run)
        )
        return log

    def _new_log(self, stream: StreamId, hold: Hold) -> LogId:
        """An empty log of the stream's columns. It is not collected while the lease lives, though nothing views it."""
        with self._catalog.writing(stream) as txn:
            log = txn.new_log(stream, appended_at=hold.begun_at)
            txn.update_log(LogState(log, stream, sealed=True, appended_at=hold.begun_at))
        return log

    def _extents(self, view: StreamView, run: Sequence[Span]) -> Iterator[tuple[Extent, pa.Schema]]:
        """What the run views, as extents cut at its edges, each with the columns it was encoded with."""
        for span in run:
            assert span.stop is not None
            position = span.start
            while position < span.stop:
                with self._catalog.reading() as snapshot:
                    page = snapshot.extents(span.log, position, span.stop, limits.EXTENTS_PER_PLAN_MAX)
                    owner = view.logs[span.log].stream
                    schemas = {extent.schema: snapshot.schema(owner, extent.schema).columns for extent in page}
                for extent in page:
                    if extent.start > position or extent.encoding == GONE:
                        break
                    piece = _sliced(extent, position, min(extent.stop, span.stop))
                    yield piece, schemas[extent.schema]
                    position = piece.stop
                if not page or page[0].start > position or page[0].encoding == GONE:
                    raise _Gone(f"log {span.log} has no extent for position {position}")

    def _publish(
        self,
        view: StreamView,
        run: Sequence[Span],
        log: LogId,
        file: _File,
        written: WrittenFile,
        weight: int,
        hold: Hold,
    ) -> bool:
        """Put the file behind the log, and the log into the segment. False where its spans are others by now."""
        stream, segment = view.info.id, run[0].segment
        with self._catalog.writing(stream) as txn:
            hold.verify(txn)
            now = txn.view(stream)
            if now is None or not set(run) <= set(now.spans.get(segment, ())):
                return False
            state = txn.logs([log])[log]
            txn.update_log(replace(state, sealed=False, appended_at=Micros(0)))
            blob = txn.insert_blob(file.key, written.data.size, hold.begun_at, PARQUET)
            extent = replace(file.extent(log, written, weight), blob=blob)
            txn.extend_log(log, [extent])
            txn.update_log(replace(txn.logs([log])[log], sealed=True))
            _respan(txn, now, moves(run), log)
        return True

    # whoever views the same bytes

    def _viewers(self, moved: Sequence[Moved]) -> set[StreamId]:
        with self._catalog.reading() as snapshot:
            return {stream for log in {each.log for each in moved} for stream, _ in snapshot.spans_of_log(log)}

    def _follow(self, stream: StreamId, moved: Sequence[Moved], log: LogId) -> None:
        with self._catalog.writing(stream) as txn:
            view = txn.view(stream)
            state = txn.logs([log]).get(log)
            # Its own stream may have been truncated or deleted since: then parts of the log are garbage already.
            if (
                view is not None
                and state is not None
                and state.low_water == 0
                and state.length == moved[-1].at + (moved[-1].stop - moved[-1].start)
            ):
                _respan(txn, view, moved, log)

    def _skip(self, why: str) -> None:
        self._report = replace(self._report, skipped=(*self._report.skipped, why))


class _Gone(CorruptStore):
    """The run was collected while it was read."""


class _File:
    """The file that a run becomes."""

    def __init__(self, blobs: Blobs, runtime: Runtime, columns: pa.Schema, key: str) -> None:
        self.key = key
        self._columns = columns
        self._sources = Sources(blobs, runtime.sealer)
        encryption: Any = None if runtime.sealer is None else runtime.sealer.file_encryption(key)
        self._builder = ParquetBuilder(columns, encryption=encryption)
        self._version = 0
        self._appended: list[int] = []
        self._events: list[int] = []

    def begin(self, stream: StreamId, log: LogId, version: int) -> None:
        """It holds a log of the stream from its beginning."""
        self._version = version
        self._builder.begin(stream, log, 0, version)

    def add(self, extent: Extent, own: pa.Schema) -> None:
        """Write an extent's rows, which were encoded with `own` columns."""
        for batch, appended in self._sources.rows(extent, own, self._columns):
            self._builder.write(batch, appended)
            self._appended += [appended[0].value, appended[-1].value]
        self._events += [each for each in (extent.events.low, extent.events.high) if each is not None]

    def finish(self) -> WrittenFile:
        """The whole file."""
        self._builder.end()
        return self._builder.finish()

    def extent(self, log: LogId, written: WrittenFile, weight: int) -> Extent:
        """All of it, still without its blob."""
        events = (Micros(min(self._events)), Micros(max(self._events))) if self._events else (None, None)
        return Extent(
            log=log,
            start=0,
            stop=written.rows,
            blob=None,
            key=self.key,
            encoding=PARQUET,
            place=Place(0, 0, 0),
            schema=self._version,
            checksum=written.checksum,
            appended=Bounds(Micros(min(self._appended)), Micros(max(self._appended))),
            events=Bounds(*events),
            size_end=weight,
        )


def _respan(txn: Writing, view: StreamView, moved: Sequence[Moved], log: LogId) -> None:
    """Let all spans of a stream that view what was moved view it in the new log."""
    changed = False
    for segment, spans in view.spans.items():
        fresh = remapped(spans, moved, log)
        if fresh is not None and fresh != spans and _views(fresh, log):
            changed = True
            txn.drop_spans(view.info.id, segment)
            for span in fresh:
                txn.put_span(view.info.id, span)
    if changed:
        txn.update_stream(replace(view.info, version=view.info.version + 1))


def _views(spans: Sequence[Span], log: LogId) -> bool:
    return any(span.log == log for span in spans)


def _weight(snapshot: Reading, view: StreamView, span: Span) -> int:
    """The logical bytes of a closed span."""
    assert span.stop is not None
    return segment_bytes(snapshot, view, span.segment, span.offset, span.offset + span.stop - span.start)


def _sliced(extent: Extent, start: int, stop: int) -> Extent:
    place = replace(extent.place, row=extent.place.row + start - extent.start)
    return replace(extent, start=start, stop=stop, place=place)
