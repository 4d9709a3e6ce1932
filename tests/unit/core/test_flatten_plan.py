"""Which spans are rewritten together, and where each event is found afterwards."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.flatten import FlattenPolicy, flattened_ranges, remap_spans, short_span_runs
from anabranch.model.ids import LogId, SegmentId
from anabranch.model.stream import Span

SEGMENT = SegmentId(0, 0)
NEW = LogId(99)


@st.composite
def chains(draw: st.DrawFn) -> list[Span]:
    """The spans of one segment; some empty, some neighbours in one log; the last may follow its log."""
    spans: list[Span] = []
    offset = draw(st.integers(0, 3))
    ends = dict.fromkeys(range(4), 0)
    for _ in range(draw(st.integers(1, 8))):
        log, skip, count = draw(st.integers(0, 3)), draw(st.integers(0, 2)), draw(st.integers(0, 4))
        start = ends[log] + skip
        ends[log] = start + count
        spans.append(Span(SEGMENT, offset, LogId(log), start, start + count))
        offset += count
    if draw(st.booleans()):
        spans.append(Span(SEGMENT, offset, LogId(7), 0, None))
    return spans


def places(spans: list[Span] | tuple[Span, ...]) -> dict[int, tuple[LogId, int]]:
    """Where each offset lies."""
    closed = [span for span in spans if span.stop is not None]
    return {
        span.offset + i: (span.log, span.start + i) for span in closed for i in range((span.stop or 0) - span.start)
    }


def weigh(span: Span) -> int:
    assert span.stop is not None
    return (span.stop - span.start) * 10


@given(chains(), st.integers(1, 4), st.integers(0, 40), st.integers(10, 90))
def test_runs_are_short_neighbours_and_no_more_than_fit(spans: list[Span], least: int, short: int, whole: int) -> None:
    policy = FlattenPolicy(least, short, whole)
    found = short_span_runs(spans, weigh, policy)
    for run in found:
        at = spans.index(run[0])
        assert tuple(spans[at : at + len(run)]) == run
        assert len(run) >= least
        assert all(span.stop is not None and weigh(span) <= short for span in run)
        assert sum(map(weigh, run)) <= whole or len(run) == 1
    if whole >= 1_000 and least == 1:
        assert sum(map(len, found)) == sum(span.stop is not None and weigh(span) <= short for span in spans)


@given(chains(), chains())
def test_every_viewer_finds_the_same_bytes_where_they_are_now(spans: list[Span], others: list[Span]) -> None:
    (run, *_) = short_span_runs(spans, weigh, FlattenPolicy(1, 1_000, 10_000)) or [()]
    if not run:
        return
    moved = flattened_ranges(run)
    now = {(each.log, at): (NEW, each.at + at - each.start) for each in moved for at in range(each.start, each.stop)}
    for viewed in (spans, others):
        fresh = remap_spans(viewed, moved, NEW)
        before, after = places(viewed), places(viewed if fresh is None else fresh)
        assert before.keys() == after.keys()
        assert all(after[offset] in (place, now.get(place)) for offset, place in before.items())
        if fresh is not None:
            assert len(fresh) <= len(viewed)
            assert [span for span in fresh if span.stop is None] == [span for span in viewed if span.stop is None]
    assert all(places(remap_spans(spans, moved, NEW) or spans)[n][0] == NEW for n in places(run))
    events = sum(each.stop - each.start for each in moved)
    if events:
        whole = remap_spans(run, moved, NEW)
        assert whole == (Span(SEGMENT, run[0].offset, NEW, 0, events),)


def test_a_span_that_reaches_out_of_what_was_moved_stays() -> None:
    run = (Span(SEGMENT, 0, LogId(1), 5, 9), Span(SEGMENT, 4, LogId(2), 0, 3))
    for other in (
        Span(SEGMENT, 0, LogId(1), 4, 8),
        Span(SEGMENT, 0, LogId(1), 5, None),
        Span(SEGMENT, 0, LogId(3), 5, 9),
    ):
        assert remap_spans((other,), flattened_ranges(run), NEW) is None
    assert remap_spans((Span(SEGMENT, 0, LogId(2), 1, 3),), flattened_ranges(run), NEW) == (
        Span(SEGMENT, 0, NEW, 5, 7),
    )
