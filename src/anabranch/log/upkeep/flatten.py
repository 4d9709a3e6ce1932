"""Flattening: rewrites neighbouring short spans of a segment as one log.

So a copy of a copy of a copy is as cheap to read as the first. Offsets, append times and bytes do not change.

A file with the rows is durable before one transaction gives the segment its new span, on condition that its spans are
still those that were read. The spans of other streams that view the same bytes follow, a stream at a time, so the rows
are written once for all generations. An interruption in between leaves spans that are as valid as before, and at most
a log that nothing views, which is collected. Readers with older plans plan again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.core.compaction import GONE
from anabranch.core.flatten import FlattenedRange, FlattenPolicy, flattened_ranges, remap_spans, short_span_runs
from anabranch.errors import CorruptStore
from anabranch.log.lease import HeldLease
from anabranch.log.log_file import LogFile
from anabranch.log.parquet.builder import WrittenFile
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.log.sizes import segment_bytes
from anabranch.log.upkeep.extent_rows import ExtentRows
from anabranch.log.upkeep.failures import Isolation
from anabranch.model.ids import LogId, SegmentId, StreamId
from anabranch.model.stream import Extent, Span, StreamView
from anabranch.runtime.ports import Runtime


@dataclass(frozen=True, slots=True)
class FlattenReport:
    """The result of a flattening: `files` new files replaced `spans` spans by fewer; `lost` counts runs that another
    client changed at the same time; `skipped` says what could not be read or stored, and why."""

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
    background: bool = False,
    policy: FlattenPolicy | None = None,
    progress: ProgressCallback = no_progress,
) -> FlattenReport:
    """Rewrites the spans that a `FlattenPolicy` selects, in one stream or in all, those with most spans first.
    Safe in parallel with everything else. Memory: one file. A stream that fails is skipped and reported, and does not
    delay others; with `background`, streams that failed recently are skipped. `progress` is called with segments. Raises
    StoreUnavailable and its subclasses."""
    isolation = Isolation(catalog, runtime, "flatten", background=background)
    return _Flattener(catalog, blobs, runtime, policy or FlattenPolicy(), isolation, progress).run(stream)


class _Flattener:
    def __init__(
        self,
        catalog: Catalog,
        blobs: Blobs,
        runtime: Runtime,
        policy: FlattenPolicy,
        isolation: Isolation,
        progress: ProgressCallback,
    ) -> None:
        self._catalog = catalog
        self._blobs = blobs
        self._runtime = runtime
        self._policy = policy
        self._isolation = isolation
        self._progress = isolation.wrap_progress(progress)
        self._report = FlattenReport()

    def run(self, stream: StreamId | None) -> FlattenReport:
        seen: set[tuple[StreamId, SegmentId]] = set()
        while True:
            with self._catalog.reading() as snapshot:
                found = snapshot.fragmented(self._policy.spans_min, len(seen) + limits.FLATTEN_PAGE)
            new_spans = [each for each in found if each not in seen]
            seen.update(new_spans)
            for done, (each, segment) in enumerate(new_spans, 1):
                if stream in (None, each) and not self._isolation.is_backing_off(each):
                    with self._isolation.guard(each):
                        self._segment(each, segment)
                self._progress("segments", len(seen) - len(new_spans) + done, len(seen))
            if not new_spans:
                break
        if stream is None:
            self._isolation.clear_failures()
        else:
            self._isolation.clear_failure(stream)
        return replace(self._report, skipped=tuple(self._isolation.failed))

    def _segment(self, stream: StreamId, segment: SegmentId) -> None:
        with self._catalog.reading() as snapshot:
            view = snapshot.view(stream)
            if view is None or segment not in view.segments:  # deleted or truncated since
                return
            chosen = short_span_runs(
                view.spans.get(segment, ()), lambda span: _span_bytes(snapshot, view, span), self._policy
            )
            chosen = [run for run in chosen if any(span.start != span.stop for span in run)]
            run_bytes = [sum(_span_bytes(snapshot, view, span) for span in run) for run in chosen]
        for run, span_bytes in zip(chosen, run_bytes, strict=True):
            moved = flattened_ranges(run)
            log = self._rewrite(view, run, span_bytes)
            if log is not None:
                for viewer in self._viewers(moved) - {stream}:
                    self._remap_viewer(viewer, moved, log)

    # one run

    def _rewrite(self, view: StreamView, run: Sequence[Span], span_bytes: int) -> LogId | None:
        stream, columns = view.info.id, view.info.schema.columns
        with HeldLease(self._catalog, self._runtime, "compact", f"{len(run)} span(s)") as lease:
            file = LogFile(self._catalog, self._runtime, view.info, lease)
            sources = ExtentRows(self._blobs, self._runtime.sealer)
            try:
                for extent, encoded_columns in self._extents(view, run):
                    for batch, appended in sources.rows(extent, encoded_columns, columns):
                        file.write(batch, appended, extent.events)
                    lease.renew()
            except CorruptStore as exc:
                if not self._is_viewed(stream, run):  # what was collected meanwhile is not missing
                    self._report = replace(self._report, lost=self._report.lost + 1)
                    return None
                where = f"segment {run[0].segment} of stream {stream:016x}"
                self._isolation.record_failure(stream, exc, where=where)
                return None
            written = file.put(self._blobs)
            if not self._publish(view, run, file, written, span_bytes):
                self._blobs.delete(file.key)  # no other process knows it
                self._report = replace(self._report, lost=self._report.lost + 1)
                return None
        before = self._report
        self._report = replace(
            before, files=before.files + 1, events=before.events + written.rows, spans=before.spans + len(run)
        )
        return file.log

    def _extents(self, view: StreamView, run: Sequence[Span]) -> Iterator[tuple[Extent, pa.Schema]]:
        """The extents that the run views, cut at its edges, each with the columns it was encoded with."""
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
                    part = extent.part(position, min(extent.stop, span.stop))
                    yield part, schemas[extent.schema]
                    position = part.stop
                if not page or page[0].start > position or page[0].encoding == GONE:
                    raise CorruptStore(f"log {span.log} has no extent for position {position}")

    def _is_viewed(self, stream: StreamId, run: Sequence[Span]) -> bool:
        """True if the segment's spans are still those of the run."""
        with self._catalog.reading() as snapshot:
            return _has(snapshot.view(stream), run)

    def _publish(
        self, view: StreamView, run: Sequence[Span], file: LogFile, written: WrittenFile, span_bytes: int
    ) -> bool:
        """Adds the file to the log, and the log to the segment. Returns False if the segment's spans have changed."""
        stream = view.info.id
        with self._catalog.writing(stream) as txn:
            current_view = txn.view(stream)
            if current_view is None or not _has(current_view, run):
                return False
            file.publish(txn, written, span_bytes)
            _replace_spans(txn, current_view, flattened_ranges(run), file.log)
        return True

    # other streams that view the same bytes

    def _viewers(self, moved: Sequence[FlattenedRange]) -> set[StreamId]:
        with self._catalog.reading() as snapshot:
            return {stream for log in {each.log for each in moved} for stream, _ in snapshot.spans_of_log(log)}

    def _remap_viewer(self, stream: StreamId, moved: Sequence[FlattenedRange], log: LogId) -> None:
        with self._catalog.writing(stream) as txn:
            view = txn.view(stream)
            state = txn.logs([log]).get(log)
            # The log's own stream may have been truncated or deleted since: then parts of the log are already gone.
            if (
                view is not None
                and state is not None
                and state.low_water == 0
                and state.length == moved[-1].at + (moved[-1].stop - moved[-1].start)
            ):
                _replace_spans(txn, view, moved, log)


def _has(view: StreamView | None, run: Sequence[Span]) -> bool:
    return view is not None and set(run) <= set(view.spans.get(run[0].segment, ()))


def _replace_spans(txn: Writing, view: StreamView, moved: Sequence[FlattenedRange], log: LogId) -> None:
    """Changes all spans of a stream that view the rewritten ranges to view the new log."""
    changed = False
    for segment, spans in view.spans.items():
        new_spans = remap_spans(spans, moved, log)
        if new_spans is not None and new_spans != spans and _views(new_spans, log):
            changed = True
            txn.drop_spans(view.info.id, segment)
            for span in new_spans:
                txn.put_span(view.info.id, span)
    if changed:
        txn.update_stream(replace(view.info, version=view.info.version + 1))


def _views(spans: Sequence[Span], log: LogId) -> bool:
    return any(span.log == log for span in spans)


def _span_bytes(snapshot: Reading, view: StreamView, span: Span) -> int:
    """The logical bytes of a closed span."""
    assert span.stop is not None
    return segment_bytes(snapshot, view, span.segment, span.offset, span.offset + span.stop - span.start)
