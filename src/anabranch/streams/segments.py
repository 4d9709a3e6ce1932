"""Scaling, sealing, fencing and truncating: the changes of a stream's segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from anabranch.catalog.port import Writing
from anabranch.core.cuts import read_offsets, resolve
from anabranch.core.scale import ScalePlan
from anabranch.errors import CorruptCatalog, InvalidArgument
from anabranch.model.append import LogState
from anabranch.model.cut import Edge, StreamCut
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.stream import Segment, Span, StreamView


def open_segment(txn: Writing, stream: StreamId, segment: Segment, *, appended_at: Micros, fence: int) -> LogId:
    """Insert a new segment with an open log, and return the log's id. Its append times start at `appended_at`, so that
    they are monotone across a key's earlier segments and this one."""
    txn.put_segment(stream, segment)
    log = open_log(txn, stream, segment.id, 0, appended_at)
    if fence:
        txn.update_log(replace(txn.logs([log])[log], fence=fence))
    return log


def open_log(txn: Writing, stream: StreamId, segment: SegmentId, offset: int, appended_at: Micros) -> LogId:
    """Let a segment continue from `offset` on in a new log, and return the log's id. Append times rise along a segment,
    so the log starts at `appended_at`, the last one before it."""
    log = txn.new_log(stream, appended_at=appended_at)
    txn.put_span(stream, Span(segment, offset, log, 0, None))
    return log


def open_successor(
    txn: Writing, stream: StreamId, segment: Segment, before: Sequence[LogState], appended_at: Micros = Micros(0)
) -> None:
    """Open a segment that takes over keys from the segments with the logs `before`, under the same fences: a writer
    that was fenced off stays fenced off. Its append times start at `appended_at` at the earliest."""
    times = [appended_at, *(log.appended_at for log in before)]
    new_log = open_segment(txn, stream, segment, appended_at=max(times), fence=max(log.fence for log in before))
    for log in before:
        txn.copy_fences(log.id, new_log)


def apply_scale(txn: Writing, view: StreamView, plan: ScalePlan, now: Micros) -> None:
    """Apply the plan. Writers of the sealed segments are refused and re-route; readers continue with the new ones."""
    stream = view.info.id
    for segment in plan.sealed:
        close_segment(txn, view, segment)
        txn.put_segment(stream, replace(segment, retired=plan.epoch))
    for segment in plan.created:
        open_successor(
            txn, stream, segment, [need_open_log(view, old) for old in plan.sealed if old.range.overlaps(segment.range)]
        )
    txn.update_stream(
        replace(
            view.info,
            version=view.info.version + 1,
            epoch=plan.epoch,
            next_number=view.info.next_number + len(plan.created),
        )
    )
    detail = {
        "epoch": plan.epoch,
        "sealed": [str(segment.id) for segment in plan.sealed],
        "created": [str(segment.id) for segment in plan.created],
        "segments": len(view.current) - len(plan.sealed) + len(plan.created),
    }
    txn.add_change(stream, "scaled", detail, now=now)


def seal_stream(txn: Writing, view: StreamView, now: Micros) -> None:
    """Refuse all further appends. Sealing a sealed stream changes nothing."""
    if view.info.sealed:
        return
    for segment in view.current:
        close_segment(txn, view, segment)
    txn.update_stream(replace(view.info, sealed=True, version=view.info.version + 1))
    txn.add_change(view.info.id, "sealed", {"epoch": view.info.epoch}, now=now)


def fence_stream(txn: Writing, view: StreamView, fence: int, now: Micros) -> None:
    """Refuse appends with a lower fence from now on. A fence never decreases. Raises InvalidArgument."""
    for segment in view.current:
        log = need_open_log(view, segment)
        if fence < log.fence:
            raise InvalidArgument(f"expected a fence of at least {log.fence}, that of '{view.info.name}'; got {fence}")
        txn.update_log(replace(log, fence=fence))
    txn.add_change(view.info.id, "fenced", {"fence": fence}, now=now)


def truncate_stream(txn: Writing, view: StreamView, place: StreamCut | Edge, now: Micros) -> None:
    """Make the events before the place unreadable; offsets do not change. A head never moves back."""
    cut = resolve(view, place)
    stream = view.info.id
    for segment, offset in read_offsets(view, cut).items():
        if offset > view.segments[segment].head:
            _truncate_segment(txn, view, view.segments[segment], offset)
    txn.update_stream(replace(view.info, version=view.info.version + 1))
    txn.add_change(stream, "truncated", {"head": str(cut)}, now=now)


def _truncate_segment(txn: Writing, view: StreamView, segment: Segment, head: int) -> None:
    stream = view.info.id
    txn.put_segment(stream, replace(segment, head=head))
    spans = view.spans.get(segment.id, ())
    txn.drop_spans(stream, segment.id)
    for span in spans:
        stop = view.logs[span.log].length if span.stop is None else span.stop
        if span.stop is None or span.offset + stop - span.start > head:
            skipped = max(0, head - span.offset)
            txn.put_span(stream, replace(span, offset=span.offset + skipped, start=span.start + skipped))


def close_segment(txn: Writing, view: StreamView, segment: Segment) -> None:
    """Seal the log of an open segment, and end its last span there."""
    log, last = need_open_log(view, segment), view.spans[segment.id][-1]
    txn.update_log(replace(log, sealed=True))
    txn.put_span(view.info.id, replace(last, stop=log.length))


def need_open_log(view: StreamView, segment: Segment) -> LogState:
    """The log to which an open segment's events are appended. Raises CorruptCatalog if it has none."""
    log = view.open_log(segment.id)
    if log is None:
        raise CorruptCatalog(f"segment {segment.id} of '{view.info.name}' is open, but has no open log", "spans")
    return view.logs[log]
