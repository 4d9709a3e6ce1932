"""Following a stream of the same store: the copy views new events in the source's logs, so no bytes are moved.

A round adds as many rows as the segment has spans, however much was written. Adjacent ranges of one log are merged into
one span, so a copy that followed for a day has as few spans as one made at the end of that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.cuts import truncated_error
from anabranch.core.spans import join_spans, locate, offset_of
from anabranch.errors import Conflict, StreamNotFound
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import Span, StreamView
from anabranch.transfer.jobs.record import JobRow, put_job


def extend_view(
    txn: Writing, row: JobRow, source: StreamId, stream: StreamId, counts: Mapping[SegmentId, int]
) -> JobRow:
    """Let the current segments of the copy `stream` view this many further events of the same segments of `source`, if
    they still exist. Returns the updated row of the job.

    The copy's own logs stay empty after what it views, and take over its append times. The transaction has no subject.
    Raises StreamNotFound, Truncated; Conflict if another process has written to the copy.
    """
    views = txn.views([source, stream])
    for each in (source, stream):
        if each not in views:
            raise StreamNotFound(f"{each:016x}")
    theirs, copy = views[source], views[stream]
    added = sum(_extend(txn, row, theirs, copy, segment, count) for segment, count in counts.items())
    if added:
        txn.update_stream(replace(copy.info, version=copy.info.version + 1))
    row = replace(row, followed=row.followed + added, lag=max(row.lag - added, 0))
    put_job(txn, row)
    return row


def verify_not_written(copy: StreamView, positions: Mapping[str, int], segment: SegmentId) -> None:
    """Raise Conflict unless the open log of the copy's segment is as long as the job left it."""
    log = copy.open_log(segment)
    if log is None or positions.get(str(log)) != copy.logs[log].length:
        raise foreign_write_error(copy.info.name)


def foreign_write_error(copy: object) -> Conflict:
    """The error for a copy that another process has written to."""
    return Conflict(
        f"'{copy}' was written to by another client, but only its job may write to a copy that follows its source"
    )


def _extend(txn: Writing, row: JobRow, source: StreamView, copy: StreamView, segment: SegmentId, count: int) -> int:
    verify_not_written(copy, row.positions or {}, segment)
    start = copy.length(segment)
    if segment not in source.segments or source.segments[segment].head > start:
        raise truncated_error(source)
    *before, own = copy.spans[segment]
    log = copy.logs[own.log]
    if log.length:  # it holds copied events: nothing can be viewed after an open log
        raise foreign_write_error(copy.info.name)
    stop = min(start + count, source.length(segment))
    fresh = []
    for span, low, high in locate(source.spans[segment], start, stop):
        if low < source.logs[span.log].low_water:
            raise truncated_error(source)
        fresh.append(Span(segment, offset_of(span, low), span.log, low, high))
    if not fresh:
        return 0
    txn.drop_spans(copy.info.id, segment)
    for span in (*join_spans(before, fresh), replace(own, offset=stop)):
        txn.put_span(copy.info.id, span)
    # Append times rise along a segment, also into the log for events that may be written to the copy later.
    appended_at = max(source.logs[span.log].appended_at for span in fresh)
    txn.update_log(replace(log, appended_at=max(log.appended_at, appended_at)))
    return stop - start
