"""Span arithmetic agrees with a model that lists every event."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.spans import locate, offset_of
from anabranch.model.ids import LogId, SegmentId
from anabranch.model.stream import Span

SEGMENT = SegmentId(0, 0)


@st.composite
def segments(draw: st.DrawFn) -> tuple[list[Span], list[tuple[int, int]], int]:
    """Spans, the (log, position) of every event they view, and the segment's first offset."""
    first = draw(st.integers(0, 5))
    spans: list[Span] = []
    events: list[tuple[int, int]] = []
    offset = first
    pieces = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 20), st.integers(1, 9)), max_size=8))
    for log, start, count in pieces:
        spans.append(Span(SEGMENT, offset, LogId(log), start, start + count))
        events += [(log, position) for position in range(start, start + count)]
        offset += count
    follows = draw(st.booleans())
    if spans and follows:  # the last span follows its log
        last = spans[-1]
        spans[-1] = Span(SEGMENT, last.offset, last.log, last.start, None)
    return spans, events, first


@given(segments(), st.integers(0, 80), st.integers(0, 80))
def test_locate_lists_the_same_events_as_a_model(
    segment: tuple[list[Span], list[tuple[int, int]], int], one: int, other: int
) -> None:
    spans, events, first = segment
    start, stop = min(one, other), min(max(one, other), first + len(events))
    found = [(span.log, position) for span, low, high in locate(spans, start, stop) for position in range(low, high)]
    assert found == events[max(start - first, 0) : max(stop - first, 0)]


@given(segments(), st.integers(0, 80), st.integers(0, 80))
def test_offsets_come_back_from_positions(
    segment: tuple[list[Span], list[tuple[int, int]], int], one: int, other: int
) -> None:
    spans, events, first = segment
    start, stop = min(one, other), min(max(one, other), first + len(events))
    back = [offset_of(span, p) for span, low, high in locate(spans, start, stop) for p in range(low, high)]
    assert back == list(range(max(start, first), max(stop, first)))


def test_an_open_span_follows_its_log_without_end() -> None:
    span = Span(SEGMENT, 10, LogId(1), 3, None)
    assert locate([span], 12, 1_000) == [(span, 5, 993)]
    assert locate([span], 0, 10) == []
