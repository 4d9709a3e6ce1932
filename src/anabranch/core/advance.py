"""Going on from a cut by so many events or bytes, in one order that everybody who asks gets the same way.

The order goes in rounds. A round is what lies ahead in the segments that stand side by side; it is shared evenly among
them, and who has less leaves the rest to the others. When all of it is passed, the successors make up the next round.
So a cut that goes on by half of a stream has about half of each segment behind it, and not some segments whole.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping

from anabranch.core.cuts import Lineage, Turn, reached, settle, share
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamView

# What the offsets `start <= offset < stop` of a segment weigh: an integer that never falls when `stop` rises.
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
    """The first cut behind `start`, event by event in the order of this module, with at least `amount` between them;
    with `at_most` the last one with no more than that. Never behind `stop` (None: the tail).

    Weighs what lies ahead once, a segment at a time, and the round in which it ends as often as halving it takes.
    """
    for positions, ahead in rounds(view, start, stop):
        if amount <= 0 and not at_most:
            break
        whole = sum(weigh(segment, positions[segment], positions[segment] + count) for segment, count in ahead.items())
        if whole > amount or (whole == amount and not at_most):
            ahead = share(ahead, _events(positions, ahead, amount, weigh, at_most))
            return _at(start, positions, ahead)
        start, amount = _at(start, positions, ahead), amount - whole
    return start


def _at(start: StreamCut, positions: Mapping[SegmentId, int], passed: Mapping[SegmentId, int]) -> StreamCut:
    return StreamCut.of(start.stream, {segment: at + passed.get(segment, 0) for segment, at in positions.items()})


def _events(
    positions: Mapping[SegmentId, int], ahead: Mapping[SegmentId, int], amount: int, weigh: Weigh, at_most: bool
) -> int:
    """The fewest events of a round that weigh `amount` or more, or the most that weigh no more."""

    def enough(count: int) -> bool:
        passed = share(ahead, count)
        found = sum(weigh(segment, positions[segment], positions[segment] + part) for segment, part in passed.items())
        return found > amount if at_most else found >= amount

    counts = range(sum(ahead.values()) + 1)
    first = bisect_left(counts, True, key=enough)
    return first - 1 if at_most else first


def rounds(
    view: StreamView, start: StreamCut, stop: StreamCut | None = None
) -> Iterator[tuple[dict[SegmentId, int], dict[SegmentId, int]]]:
    """Where a reader stands that goes on from `start` round by round, and how many events lie ahead in each segment,
    at least one in all. Takes O(n log n) for all rounds together, n being the segments of the view."""
    lineage = Lineage.of(view)
    turn_of: dict[SegmentId, Turn] = {segment: turn for turn in lineage.turns for segment in turn.before}
    limit = None if stop is None else reached(view, stop)
    standing = settle(view, start.as_dict())
    while True:
        ahead = {segment: _end(view, limit, segment) - at for segment, at in standing.items()}
        ahead = {segment: count for segment, count in ahead.items() if count > 0}
        if not ahead:
            return
        yield dict(standing), ahead
        _pass(view, standing, ahead, turn_of)


def _end(view: StreamView, limit: Mapping[SegmentId, int] | None, segment: SegmentId) -> int:
    return view.length(segment) if limit is None else limit.get(segment, view.segments[segment].head)


def _pass(
    view: StreamView, standing: dict[SegmentId, int], ahead: Mapping[SegmentId, int], turn_of: Mapping[SegmentId, Turn]
) -> None:
    """Move behind what lay ahead, and on to the successors where all their predecessors are exhausted."""
    moved = list(ahead)
    for segment in moved:
        standing[segment] += ahead[segment]
    while moved:
        turn = turn_of.get(moved.pop())
        if turn is None or not all(standing.get(s, -1) >= view.length(s) for s in turn.before):
            continue
        for segment in turn.before:
            del standing[segment]
        for segment in turn.after:
            standing[segment] = standing.get(segment, view.segments[segment].head)
            moved.append(segment)  # which may be empty, and exhausted already
