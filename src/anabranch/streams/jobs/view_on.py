"""Following a stream of the same store: the copy views what is new in the logs where it lies, so no byte is moved.

What a round adds costs as many rows as the segment has spans, whatever was written. Ranges of one log that follow each
other are one span, so a copy that followed for a day has as few as one that was made in the evening.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.cuts import truncated
from anabranch.core.spans import joined, locate, offset_of
from anabranch.errors import Conflict, StreamNotFound
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import Span, StreamView
from anabranch.streams.jobs.row import JobRow


def view_on(txn: Writing, row: JobRow, source: StreamId, stream: StreamId, counts: Mapping[SegmentId, int]) -> JobRow:
    """Let the current segments of the copy `stream` view so many further events of the same segments of `source`, where
    there are still so many. Returns the job's row behind it.

    The copy's own logs stay empty behind what it views, and take their append times from there. The transaction is on
    no subject. Raises StreamNotFound, Truncated; Conflict where somebody else has written to the copy.
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
    txn.put_piece(row.to_piece())
    return row


def verify_own(copy: StreamView, positions: Mapping[str, int], segment: SegmentId) -> None:
    """Raises Conflict unless the open log of the copy's segment is as long as the job has left it."""
    log = copy.open_log(segment)
    if log is None or positions.get(str(log)) != copy.logs[log].length:
        raise foreign(copy)


def foreign(copy: StreamView) -> Conflict:
    """The error for a copy that somebody else has written to."""
    return Conflict(f"'{copy.info.name}' was written to by somebody else: a copy that follows its source can't be")


def _extend(txn: Writing, row: JobRow, source: StreamView, copy: StreamView, segment: SegmentId, count: int) -> int:
    verify_own(copy, row.positions or {}, segment)
    start = copy.length(segment)
    if segment not in source.segments or source.segments[segment].head > start:
        raise truncated(source)
    *before, own = copy.spans[segment]
    log = copy.logs[own.log]
    if log.length:  # it holds what was copied into it: nothing can be viewed behind an open log
        raise foreign(copy)
    stop = min(start + count, source.length(segment))
    fresh = []
    for span, low, high in locate(source.spans[segment], start, stop):
        if low < source.logs[span.log].low_water:
            raise truncated(source)
        fresh.append(Span(segment, offset_of(span, low), span.log, low, high))
    if not fresh:
        return 0
    txn.drop_spans(copy.info.id, segment)
    for span in (*joined(before, fresh), replace(own, offset=stop)):
        txn.put_span(copy.info.id, span)
    # Append times rise along a segment, also into the log that takes what is written to the copy some day.
    appended_at = max(source.logs[span.log].appended_at for span in fresh)
    txn.update_log(replace(log, appended_at=max(log.appended_at, appended_at)))
    return stop - start
