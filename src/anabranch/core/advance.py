"""Advancing from a cut by a number of events or bytes, in one order that is the same for every caller.

The order goes in rounds. A round is what remains in the segments that are read side by side. It is shared evenly among
them; a segment with fewer events leaves the rest to the others. When a round is used up, the successors form the next
one. So advancing by half of a stream passes about half of each segment, not some segments entirely.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

from anabranch.core.cuts import Handover, SegmentGraph, divide_evenly, read_offsets, skip_exhausted
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView

# The weight of the offsets `start <= offset < stop` of a segment: an integer that never decreases as `stop` increases.
Weigh = Callable[[SegmentId, int, int], int]


def advance(
    view: StreamView,
    start: StreamCut,
    amount: int,
    weigh: Weigh,
    *,
    at_most: bool = False,
    stop: StreamCut | None = None,
) -> StreamCut:
    """The first cut after `start`, event by event in this module's order, with at least `amount` between them; with
    `at_most`, the last cut with no more than `amount` between them. Never after `stop` (None: the tail).

    Weighs each segment ahead once, and those of the last round once per step of a binary search.
    """
    for positions, ahead in rounds(view, start, stop):
        if amount <= 0 and not at_most:
            break
        total = sum(weigh(segment, positions[segment], positions[segment] + count) for segment, count in ahead.items())
        if total > amount or (total == amount and not at_most):
            ahead = divide_evenly(ahead, _round_events(positions, ahead, amount, weigh, at_most))
            return _at(start, positions, ahead)
        start, amount = _at(start, positions, ahead), amount - total
    return start


def _at(start: StreamCut, positions: Mapping[SegmentId, int], passed: Mapping[SegmentId, int]) -> StreamCut:
    return StreamCut.of(start.stream, {segment: at + passed.get(segment, 0) for segment, at in positions.items()})


def _round_events(
    positions: Mapping[SegmentId, int], ahead: Mapping[SegmentId, int], amount: int, weigh: Weigh, at_most: bool
) -> int:
    """The fewest events of a round that weigh at least `amount`; with `at_most`, the most that weigh no more."""

    def enough(count: int) -> bool:
        passed = divide_evenly(ahead, count)
        found = sum(weigh(segment, positions[segment], positions[segment] + part) for segment, part in passed.items())
        return found > amount if at_most else found >= amount

    counts = range(sum(ahead.values()) + 1)
    first = bisect_left(counts, True, key=enough)
    return first - 1 if at_most else first


def rounds(
    view: StreamView, start: StreamCut, stop: StreamCut | None = None
) -> Iterator[tuple[dict[SegmentId, int], dict[SegmentId, int]]]:
    """For each round from `start` on: the reader's offset in each segment, and the number of events that remain in each
    segment, at least one in total. Takes O(n log n) for all rounds together, n being the segments of the view."""
    lineage = SegmentGraph.of(view)
    handover_of: dict[SegmentId, Handover] = {
        segment: handover for handover in lineage.handovers for segment in handover.before
    }
    limit = None if stop is None else read_offsets(view, stop)
    positions = skip_exhausted(view, start.as_dict())
    while True:
        ahead = {segment: _end(view, limit, segment) - at for segment, at in positions.items()}
        ahead = {segment: count for segment, count in ahead.items() if count > 0}
        if not ahead:
            return
        yield dict(positions), ahead
        _move_past(view, positions, ahead, handover_of)


def _end(view: StreamView, limit: Mapping[SegmentId, int] | None, segment: SegmentId) -> int:
    return view.length(segment) if limit is None else limit.get(segment, view.segments[segment].head)


def _move_past(
    view: StreamView,
    positions: dict[SegmentId, int],
    ahead: Mapping[SegmentId, int],
    handover_of: Mapping[SegmentId, Handover],
) -> None:
    """Move past the round's events, and on to the successors of segments whose handover is complete."""
    moved = list(ahead)
    for segment in moved:
        positions[segment] += ahead[segment]
    while moved:
        handover = handover_of.get(moved.pop())
        if handover is None or not all(positions.get(s, -1) >= view.length(s) for s in handover.before):
            continue
        for segment in handover.before:
            del positions[segment]
        for segment in handover.after:
            positions[segment] = positions.get(segment, view.segments[segment].head)
            moved.append(segment)  # it may be empty, so already exhausted
