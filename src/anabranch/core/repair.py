"""Safe repairs of a catalog's rows: they change only values that follow from other rows, and lose nothing readable.

A change is proposed for each known kind of damage, and applied only if fewer invariants are broken with it and none is
new. So no repair has to understand what else may be broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from anabranch.core.invariants import ExtentChain, log_violations, stream_violations
from anabranch.model.append import LogState
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.stream import Extent, Segment, Span, StreamInfo, StreamView

# Returns a log's extents in order, from a position on.
Extents = Callable[[int], Iterable[Extent]]


@dataclass(frozen=True, slots=True)
class StreamRepair:
    """Rows that replace those with the same key, and a sentence for each change."""

    info: StreamInfo | None
    segments: tuple[Segment, ...]
    spans: tuple[Span, ...]
    logs: tuple[LogState, ...]
    messages: tuple[str, ...]


def repair_stream(view: StreamView) -> StreamRepair | None:
    """The safe changes to a stream's rows, or None."""
    repaired, messages = view, []
    flaws = _stream_flaws(view)
    for message, change in _stream_proposals(view):
        candidate = change(repaired)
        if (remaining := _stream_flaws(candidate)) < flaws:
            repaired, flaws = candidate, remaining
            messages.append(message)
    if not messages:
        return None
    spans = [(old, new) for at in view.spans for old, new in zip(view.spans[at], repaired.spans[at], strict=True)]
    return StreamRepair(
        repaired.info if repaired.info != view.info else None,
        tuple(segment for at, segment in repaired.segments.items() if segment != view.segments[at]),
        tuple(new for old, new in spans if new != old),
        tuple(log for at, log in repaired.logs.items() if log != view.logs[at]),
        tuple(messages),
    )


def _stream_flaws(view: StreamView) -> set[object]:
    return set(stream_violations(view))


def _stream_proposals(view: StreamView) -> Iterator[tuple[str, Callable[[StreamView], StreamView]]]:
    highest = max((segment.number for segment in view.segments), default=-1)
    if view.info.next_number <= highest:
        message = f"its next segment's number is {highest + 1}, not {view.info.next_number}"
        yield message, lambda v: replace(v, info=replace(v.info, next_number=highest + 1))
    for segment in view.ordered:
        spans = view.spans.get(segment.id, ())
        if not spans:
            continue
        if segment.head < spans[0].offset:
            message = (
                f"segment {segment.id}: its head is {spans[0].offset}, not {segment.head}: no events are before it"
            )
            yield message, _with_head(segment, spans[0].offset)
        log = view.logs.get(spans[-1].log)
        if view.sealed(segment.id) and spans[-1].stop is None and log is not None:
            yield (
                f"segment {segment.id}: it is sealed, so it ends where log {log.id} does now",
                _frozen(segment.id, log),
            )


def _with_head(segment: Segment, head: int) -> Callable[[StreamView], StreamView]:
    return lambda v: replace(v, segments={**v.segments, segment.id: replace(segment, head=head)})


def _frozen(segment: SegmentId, log: LogState) -> Callable[[StreamView], StreamView]:
    def change(view: StreamView) -> StreamView:
        *before, last = view.spans[segment]
        spans = {**view.spans, segment: (*before, replace(last, stop=log.length))}
        return replace(view, spans=spans, logs={**view.logs, log.id: replace(log, sealed=True)})

    return change


def repair_log(
    log: LogState, spans: Sequence[tuple[StreamId, Span]], extents: Extents
) -> tuple[LogState, tuple[str, ...]] | None:
    """The log's row with all safe changes, and a sentence for each; None if there are none."""
    flaws = _log_flaws(log, spans, extents)
    if not flaws:
        return None
    repaired, messages = log, []
    for message, candidate in _log_proposals(log, spans, extents):
        changed = candidate(repaired)
        if (remaining := _log_flaws(changed, spans, extents)) < flaws:
            repaired, flaws = changed, remaining
            messages.append(message)
    return (repaired, tuple(messages)) if messages else None


def _log_flaws(log: LogState, spans: Sequence[tuple[StreamId, Span]], extents: Extents) -> set[str]:
    chain = ExtentChain.of(spans)
    found = set(log_violations(log, spans))
    for extent in extents(max(0, log.low_water)):
        # The numbers in a sentence may change with the row; that the log's own row is wrong does not.
        found.update(message for message in chain.check_next(log, extent))
    found.update(chain.check_end(log))
    return found


def _log_proposals(
    log: LogState, spans: Sequence[tuple[StreamId, Span]], extents: Extents
) -> Iterator[tuple[str, Callable[[LogState], LogState]]]:
    first: Extent | None = None
    last: Extent | None = None
    latest: int | None = None
    for extent in extents(0):
        first, last = first or extent, extent
        if extent.events.high is not None:
            latest = max(extent.events.high, latest if latest is not None else extent.events.high)
    begins = log.length if first is None else first.start
    viewed = [span.start for _, span in spans if span.stop is None or span.start < span.stop]
    misplaced = log.low_water < begins or not 0 <= log.low_water <= log.length
    # Nothing is readable below the first extent; but if a span views it, there were events, and they are lost.
    if misplaced and all(start >= begins for start in viewed):
        yield f"its low-water mark is {begins}, not {log.low_water}", lambda s: replace(s, low_water=begins)
    if not log.sealed and not any(span.stop is None for _, span in spans):
        yield "it is sealed: no span follows it", lambda s: replace(s, sealed=True)
    if last is None:
        return
    end, high = last.size_end, last.appended.high
    if log.size != end and last.stop == log.length:  # else the difference may be the bytes of missing extents
        yield f"it holds {end} logical bytes, not {log.size}", lambda s: replace(s, size=end)
    if high is not None and log.appended_at < high:
        yield f"its last append was at {high} µs, not {log.appended_at}", lambda s: replace(s, appended_at=Micros(high))
    if latest is not None and (log.event_high is None or log.event_high < latest):
        yield (
            f"its greatest event time is {latest} µs, not {log.event_high}",
            lambda s: replace(s, event_high=Micros(latest)),
        )
