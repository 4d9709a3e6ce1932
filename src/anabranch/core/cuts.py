"""The arithmetic of stream cuts over a stream's view.

A stream's segments form generations. When an epoch begins, groups of segments are retired and others take their key
ranges over; within a group no successor may be read before every predecessor is exhausted, or the events of one key
would change their order. `Lineage` holds these groups, called turns, in epoch order. A cut is sound if reading from
the head could stop there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from anabranch.errors import InvalidCut, Truncated
from anabranch.model.cut import HEAD, Edge, Order, StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import covers_once
from anabranch.model.stream import Segment, StreamView


@dataclass(frozen=True, slots=True)
class Turn:
    """The smallest group of segments that hands a key range over at one epoch: all of `before` end, then all of
    `after` begin."""

    before: tuple[SegmentId, ...]
    after: tuple[SegmentId, ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The turns of a stream in epoch order, and the segments that no present segment precedes."""

    roots: tuple[SegmentId, ...]
    turns: tuple[Turn, ...]

    @classmethod
    def of(cls, view: StreamView) -> Lineage:
        """Takes O(n log n) in the segments of the view."""
        ending: dict[int, list[Segment]] = {}
        beginning: dict[int, list[Segment]] = {}
        for segment in view.ordered:
            beginning.setdefault(segment.created, []).append(segment)
            if segment.retired is not None:
                ending.setdefault(segment.retired, []).append(segment)
        turns = [turn for epoch in sorted(ending) for turn in _turns(ending[epoch], beginning.get(epoch, ()))]
        heirs = {segment for turn in turns for segment in turn.after}
        return cls(tuple(s.id for s in view.ordered if s.id not in heirs), tuple(turns))


def _turns(ending: Iterable[Segment], beginning: Iterable[Segment]) -> list[Turn]:
    """Group segments whose key ranges overlap, directly or through others of the same epoch."""
    members = sorted([(s.range, True, s.id) for s in ending] + [(s.range, False, s.id) for s in beginning])
    turns: list[Turn] = []
    before: list[SegmentId] = []
    after: list[SegmentId] = []
    edge = 0
    for range_, ends, segment in members:
        if range_.low >= edge:
            turns.append(Turn(tuple(before), tuple(after)))
            before, after = [], []
        (before if ends else after).append(segment)
        edge = max(edge, range_.high)
    turns.append(Turn(tuple(before), tuple(after)))
    # Without predecessors these are roots: what they took over from was truncated away.
    return [turn for turn in turns if turn.before and turn.after]


def settle(view: StreamView, positions: Mapping[SegmentId, int]) -> dict[SegmentId, int]:
    """The same place, in its furthest form: where all predecessors of a turn are exhausted, its successors stand at
    their heads instead, or where `positions` has them already. The key space stays covered exactly once."""
    return _settle(view, positions, None)


def _settle(
    view: StreamView,
    positions: Mapping[SegmentId, int],
    lineage: Lineage | None,
    begun: Mapping[SegmentId, int] | None = None,
) -> dict[SegmentId, int]:
    """`begun`: where successors stand that do not stand at their heads."""
    settled = dict(positions)
    further = begun or {}

    def exhausted(segment: SegmentId) -> bool:
        return segment in settled and settled[segment] >= view.length(segment)

    if not any(view.segments[s].retired is not None and exhausted(s) for s in settled):
        return settled
    for turn in (lineage or Lineage.of(view)).turns:
        if all(exhausted(segment) for segment in turn.before):
            for segment in turn.before:
                del settled[segment]
            for segment in turn.after:
                settled.setdefault(segment, _reach(view, further, segment))
    return settled


def head_cut(view: StreamView) -> StreamCut:
    """The cut before the first event that can be read."""
    lineage = Lineage.of(view)
    start = {segment: view.segments[segment].head for segment in lineage.roots}
    return StreamCut.of(view.info.id, _settle(view, start, lineage))


def tail_cut(view: StreamView) -> StreamCut:
    """The cut behind the last event."""
    return StreamCut.of(view.info.id, {segment.id: view.length(segment.id) for segment in view.current})


def resolve(view: StreamView, cut: StreamCut | Edge) -> StreamCut:
    """The head, the tail, or a checked cut. Raises as `check_cut`."""
    if isinstance(cut, Edge):
        return head_cut(view) if cut is HEAD else tail_cut(view)
    return check_cut(view, cut)


def check_cut(view: StreamView, cut: StreamCut) -> StreamCut:
    """Return `cut` if it is a place in this stream where reading can start or end.

    Raises InvalidCut if it belongs to another stream, names an unknown segment or an offset behind a segment's end,
    covers the key space not exactly once, or holds a segment together with one that must be read before it; Truncated
    if it lies before the head.
    """
    if cut.stream != view.info.id:
        raise InvalidCut(f"the cut belongs to stream {cut.stream:016x}, not to '{view.info.name}'")
    below = False
    for segment, offset in cut:
        if segment not in view.segments:
            # Numbers are never used twice, so a number given out before belongs to a segment that was truncated away.
            if segment.number < view.info.next_number and segment.epoch <= view.info.epoch:
                below = True
                continue
            raise InvalidCut(f"'{view.info.name}' has no segment {segment}")
        if offset > view.length(segment):
            raise InvalidCut(
                f"offset {offset} lies behind the end of segment {segment}, which holds {view.length(segment)} events"
            )
        below = below or offset < view.segments[segment].head
    if below:
        raise truncated(view)
    if not covers(view, cut):
        raise InvalidCut("the cut does not cover the key space exactly once")
    reached(view, cut)
    return cut


def truncated(view: StreamView) -> Truncated:
    """The error for a position below the head of this view."""
    return Truncated(str(view.info.name), {str(segment): offset for segment, offset in head_cut(view)})


def below_head(view: StreamView, positions: Mapping[SegmentId, int]) -> bool:
    """True if a position can't be read any more: its segment is gone, or its offset lies before the segment's head."""
    return any(
        segment not in view.segments or offset < view.segments[segment].head for segment, offset in positions.items()
    )


def raised(view: StreamView, cut: StreamCut) -> StreamCut:
    """The first place at or behind `cut` from which can be read: `cut` itself, but for what lies before the head, which
    goes there. Of segments that are gone, those stand that took over from them."""
    at = cut.as_dict()
    lineage = Lineage.of(view)
    passed = {each for segment in at if segment in view.segments for each in _preceding(lineage, segment)}

    def first_unread(segment: SegmentId) -> int | None:
        offset = max(at.get(segment, 0), view.segments[segment].head)
        return None if segment in passed or offset >= view.length(segment) else offset

    return walk_cut(view, first_unread)


def covers(view: StreamView, cut: StreamCut) -> bool:
    """True if the key ranges of the cut's segments cover the key space exactly once."""
    return covers_once(view.segments[segment].range for segment, _ in cut)


def reached(view: StreamView, cut: StreamCut) -> dict[SegmentId, int]:
    """How far a reader has come that started at the head and stands at `cut`: for each segment it has begun, the
    offset behind its last event. Raises InvalidCut where no reader that keeps the order could stand there."""
    lineage, at = Lineage.of(view), cut.as_dict()
    standing = set(lineage.roots)
    passed: dict[SegmentId, int] = {}
    for turn in lineage.turns:
        if standing.issuperset(turn.before) and at.keys().isdisjoint(turn.before):
            standing.difference_update(turn.before)
            standing.update(turn.after)
            passed.update((segment, view.length(segment)) for segment in turn.before)
    if standing != at.keys():
        raise InvalidCut("the cut holds a segment together with one that must be read before it")
    return passed | at


def before(view: StreamView, first: StreamCut, second: StreamCut) -> bool:
    """True if no event lies before `first` that does not lie before `second` too. Equal places are `before` each
    other; two cuts may also be neither before nor behind. Raises InvalidCut."""
    late = reached(view, second)
    return all(offset <= _reach(view, late, segment) for segment, offset in reached(view, first).items())


def compare(view: StreamView, first: StreamCut, second: StreamCut) -> Order:
    """How `first` lies to `second`. Texts may differ and still be the `SAME` place: at the end of a segment is at the
    head of its successors. Raises InvalidCut."""
    not_behind, not_ahead = before(view, first, second), before(view, second, first)
    if not_behind:
        return Order.SAME if not_ahead else Order.BEFORE
    return Order.AFTER if not_ahead else Order.CONCURRENT


def furthest(view: StreamView, first: StreamCut, second: StreamCut) -> StreamCut:
    """The place before which everything lies that lies before one of the two. Raises InvalidCut."""
    one, other = reached(view, first), reached(view, second)
    ends = {s: max(_reach(view, one, s), _reach(view, other, s)) for s in one.keys() | other.keys()}
    return _place(view, ends)


def nearest(view: StreamView, first: StreamCut, second: StreamCut) -> StreamCut:
    """The place before which just that lies that lies before both. Raises InvalidCut."""
    one, other = reached(view, first), reached(view, second)
    return _place(view, {s: min(one[s], other[s]) for s in one.keys() & other.keys()})


def _place(view: StreamView, ends: Mapping[SegmentId, int]) -> StreamCut:
    """The cut of a reader that has come so far in each segment that it has begun; the inverse of `reached`."""
    lineage = Lineage.of(view)
    start = {segment: _reach(view, ends, segment) for segment in lineage.roots}
    standing = _settle(view, start, lineage, ends)
    return StreamCut.of(view.info.id, standing)


def ranges(view: StreamView, start: StreamCut, end: StreamCut) -> list[tuple[SegmentId, int, int]]:
    """The segment ranges between two cuts, as (segment, first offset, offset after the last), none empty.

    In segment order, which reads every segment after those it took over from. Raises InvalidCut if some position of
    `end` lies before `start`.
    """
    early, late = reached(view, start), reached(view, end)
    found = []
    for segment in sorted(early.keys() | late.keys()):
        low, high = _reach(view, early, segment), _reach(view, late, segment)
        if high < low:
            raise InvalidCut(f"the end lies before the start in segment {segment}: {high} is below {low}")
        if low < high:
            found.append((segment, low, high))
    return found


def distance(view: StreamView, start: StreamCut, end: StreamCut) -> int:
    """The number of events between two cuts. Raises InvalidCut as `ranges`."""
    return sum(high - low for _, low, high in ranges(view, start, end))


def _reach(view: StreamView, offsets: Mapping[SegmentId, int], segment: SegmentId) -> int:
    offset = offsets.get(segment)
    return view.segments[segment].head if offset is None else offset


def next_cut(
    view: StreamView,
    start: StreamCut,
    *,
    events_max: int | None = None,
    bytes_max: int | None = None,
    stop: StreamCut | None = None,
) -> StreamCut:
    """The end of one micro-batch that begins at `start`, at most at `stop` (None: the tail).

    The batch never holds a segment together with its successor, and what the budget allows is shared evenly among the
    segments that have events. `bytes_max` is in logical bytes, estimated from the mean of the log that each segment
    ends in. While events remain, a batch holds at least one; where none remain, `start` itself is returned.
    """
    positions = settle(view, start.as_dict())
    limit = {s: view.length(s) for s in positions} if stop is None else reached(view, stop)
    waiting = {s: max(_reach(view, limit, s) - at, 0) for s, at in positions.items()}
    waiting = {s: count for s, count in waiting.items() if count}
    if not waiting:
        return start
    taken = waiting if events_max is None else share(waiting, max(events_max, 1))
    if bytes_max is not None:
        taken = {s: count for s, count in taken.items() if count}
        weight = {s: _event_bytes(view, s) for s in taken}
        granted = share({s: math.ceil(count * weight[s]) for s, count in taken.items()}, bytes_max)
        fitting = {s: min(count, int(granted[s] / weight[s])) for s, count in taken.items()}
        taken = fitting if any(fitting.values()) else {min(taken): 1}
    return StreamCut.of(start.stream, {s: at + taken.get(s, 0) for s, at in positions.items()})


def share(wanted: Mapping[SegmentId, int], budget: int) -> dict[SegmentId, int]:
    """Divide a budget evenly: nobody gets more than wanted, and who gets less than wanted gets as much as anybody, but
    for a remainder, which goes one by one to those who want most. The whole budget is used if so much is wanted."""
    granted: dict[SegmentId, int] = {}
    left = budget
    for index, segment in enumerate(sorted(wanted, key=lambda s: (wanted[s], _reversed(s)))):
        granted[segment] = min(wanted[segment], max(left, 0) // (len(wanted) - index))
        left -= granted[segment]
    return granted


def _reversed(segment: SegmentId) -> tuple[int, int]:
    # The remainders of a division fall to those who come last, and they shall be the oldest segments.
    return -segment.epoch, -segment.number


def _event_bytes(view: StreamView, segment: SegmentId) -> float:
    spans = view.spans.get(segment, ())
    log = view.logs.get(spans[-1].log) if spans else None
    return max(log.size / log.length, 1.0) if log is not None and log.length else 1.0


def walk_cut(
    view: StreamView,
    first_at: Callable[[SegmentId], int | None],
    *,
    pin: tuple[SegmentId, int] | None = None,
) -> StreamCut:
    """The cut whose position in each segment is `first_at` of it, walking from the head.

    `first_at` gives the first offset that is wanted, or None where the segment holds none; it is asked at most once
    for each segment. A turn is passed when all its predecessors hold none. `pin` places one segment at an offset
    exactly, whatever `first_at` says of it and of those that precede it.
    """
    lineage = Lineage.of(view)
    passed = set() if pin is None else _preceding(lineage, pin[0])
    answers: dict[SegmentId, int | None] = {} if pin is None else {pin[0]: pin[1]}

    def first(segment: SegmentId) -> int | None:
        if segment in passed:
            return None
        if segment not in answers:
            answers[segment] = first_at(segment)
        return answers[segment]

    standing = set(lineage.roots)
    for turn in lineage.turns:
        if standing.issuperset(turn.before) and all(first(segment) is None for segment in turn.before):
            standing.difference_update(turn.before)
            standing.update(turn.after)
    offsets = {}
    for segment in standing:
        offset = first(segment)
        offsets[segment] = view.length(segment) if offset is None else max(offset, view.segments[segment].head)
    return StreamCut.of(view.info.id, offsets)


def _preceding(lineage: Lineage, segment: SegmentId) -> set[SegmentId]:
    """All segments that must be read before this one."""
    wanted = {segment}
    for turn in reversed(lineage.turns):
        if not wanted.isdisjoint(turn.after):
            wanted.update(turn.before)
    return wanted - {segment}
