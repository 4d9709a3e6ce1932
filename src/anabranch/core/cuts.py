"""Arithmetic of stream cuts over a stream's view.

A stream's segments form generations. When an epoch begins, groups of segments are retired and others take over their
key ranges. Within a group, no successor may be read before every predecessor is exhausted, or the events of one key
would be reordered. `SegmentGraph` holds these groups, called handovers, in epoch order. A cut is valid if reading from
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
from anabranch.model.relocation import Relocation
from anabranch.model.stream import Segment, StreamView


@dataclass(frozen=True, slots=True)
class Handover:
    """The smallest group of segments that hands over a key range at one epoch: all of `before` end, then all of `after`
    begin."""

    before: tuple[SegmentId, ...]
    after: tuple[SegmentId, ...]


@dataclass(frozen=True, slots=True)
class SegmentGraph:
    """The handovers of a stream in epoch order, and `roots`, the segments without predecessors in the view."""

    roots: tuple[SegmentId, ...]
    handovers: tuple[Handover, ...]

    @classmethod
    def of(cls, view: StreamView) -> SegmentGraph:
        """Build the graph. Takes O(n log n) in the segments of the view."""
        ending: dict[int, list[Segment]] = {}
        beginning: dict[int, list[Segment]] = {}
        for segment in view.ordered:
            beginning.setdefault(segment.created, []).append(segment)
            if segment.retired is not None:
                ending.setdefault(segment.retired, []).append(segment)
        handovers = [
            handover for epoch in sorted(ending) for handover in _handovers(ending[epoch], beginning.get(epoch, ()))
        ]
        successors = {segment for handover in handovers for segment in handover.after}
        return cls(tuple(s.id for s in view.ordered if s.id not in successors), tuple(handovers))


def _handovers(ending: Iterable[Segment], beginning: Iterable[Segment]) -> list[Handover]:
    """Group segments whose key ranges overlap, directly or through others of the same epoch."""
    members = sorted([(s.range, True, s.id) for s in ending] + [(s.range, False, s.id) for s in beginning])
    handovers: list[Handover] = []
    before: list[SegmentId] = []
    after: list[SegmentId] = []
    edge = 0
    for range_, ends, segment in members:
        if range_.low >= edge:
            handovers.append(Handover(tuple(before), tuple(after)))
            before, after = [], []
        (before if ends else after).append(segment)
        edge = max(edge, range_.high)
    handovers.append(Handover(tuple(before), tuple(after)))
    # The predecessors of a group without `before` were truncated, so its segments are roots.
    return [handover for handover in handovers if handover.before and handover.after]


def skip_exhausted(view: StreamView, positions: Mapping[SegmentId, int]) -> dict[SegmentId, int]:
    """The same place, advanced as far as possible: if all predecessors of a handover are exhausted, its successors
    replace them. A successor begins at its head, or at its offset in `positions` if it is there already. The key space
    stays covered exactly once."""
    return _advance(view, positions, None)


def _advance(
    view: StreamView,
    positions: Mapping[SegmentId, int],
    graph: SegmentGraph | None,
    begun: Mapping[SegmentId, int] | None = None,
) -> dict[SegmentId, int]:
    """`begun` gives the offsets of successors that are not at their heads."""
    advanced = dict(positions)
    begun_offsets = begun or {}

    def exhausted(segment: SegmentId) -> bool:
        return segment in advanced and advanced[segment] >= view.length(segment)

    if not any(view.segments[s].retired is not None and exhausted(s) for s in advanced):
        return advanced
    for handover in (graph or SegmentGraph.of(view)).handovers:
        if all(exhausted(segment) for segment in handover.before):
            for segment in handover.before:
                del advanced[segment]
            for segment in handover.after:
                advanced.setdefault(segment, _reach(view, begun_offsets, segment))
    return advanced


def head_cut(view: StreamView) -> StreamCut:
    """The cut before the first readable event."""
    graph = SegmentGraph.of(view)
    start = {segment: view.segments[segment].head for segment in graph.roots}
    return StreamCut.of(view.info.id, _advance(view, start, graph))


def tail_cut(view: StreamView) -> StreamCut:
    """The cut after the last event."""
    return StreamCut.of(view.info.id, {segment.id: view.length(segment.id) for segment in view.current})


def resolve(view: StreamView, cut: StreamCut | Edge) -> StreamCut:
    """The head, the tail, or the given cut after checking it. Raises as `check_cut`."""
    if isinstance(cut, Edge):
        return head_cut(view) if cut is HEAD else tail_cut(view)
    return check_cut(view, cut)


def check_stream(view: StreamView, cut: StreamCut) -> None:
    """Raise InvalidCut if the cut belongs to another stream, or is no StreamCut."""
    if not isinstance(cut, StreamCut):
        raise InvalidCut(f"expected a StreamCut, got {type(cut).__name__}")
    if cut.stream != view.info.id:
        raise InvalidCut(f"the cut belongs to stream {cut.stream:016x}, not to '{view.info.name}'")


def check_cut(view: StreamView, cut: StreamCut) -> StreamCut:
    """Return `cut` if it is a place in this stream where reading can start or end.

    Raises InvalidCut if it belongs to another stream, names an unknown segment or an offset after a segment's end, does
    not cover the key space exactly once, or holds a segment together with one that must be read before it. Raises
    Truncated if it is before the head.
    """
    check_stream(view, cut)
    below = False
    for segment, offset in cut:
        if segment not in view.segments:
            # Numbers are never reused, so a number assigned earlier belongs to a segment that was truncated.
            if segment.number < view.info.next_number and segment.epoch <= view.info.epoch:
                below = True
                continue
            raise InvalidCut(f"'{view.info.name}' has no segment {segment}")
        if offset > view.length(segment):
            raise InvalidCut(
                f"expected an offset of at most {view.length(segment)}, the end of segment {segment}; got {offset}"
            )
        below = below or offset < view.segments[segment].head
    if below:
        raise truncated_error(view)
    if not covers(view, cut):
        raise InvalidCut("the cut does not cover the key space exactly once")
    read_offsets(view, cut)
    return cut


def truncated_error(view: StreamView) -> Truncated:
    """The error for a position before the head of this view."""
    return Truncated(str(view.info.name), {str(segment): offset for segment, offset in head_cut(view)})


def below_head(view: StreamView, positions: Mapping[SegmentId, int]) -> bool:
    """True if a position can't be read any more: its segment is gone, or its offset is before the segment's head."""
    return any(
        segment not in view.segments or offset < view.segments[segment].head for segment, offset in positions.items()
    )


def check_readable(view: StreamView, positions: Mapping[SegmentId, int]) -> None:
    """Raises Truncated if a position can't be read any more."""
    if below_head(view, positions):
        raise truncated_error(view)


def clamp_to_head(view: StreamView, cut: StreamCut) -> StreamCut:
    """The first readable place at or after `cut`: `cut` itself, except that positions before the head move to the head.
    Truncated segments are replaced by their successors. If a replacement of events removed segments, the cut is first
    mapped by `map_relocated`, where the corresponding place is known."""
    cut = map_relocated(view, cut) or cut
    at = cut.as_dict()
    graph = SegmentGraph.of(view)
    read = {each for segment in at if segment in view.segments for each in _preceding(graph, segment)}

    def first_unread(segment: SegmentId) -> int | None:
        offset = max(at.get(segment, 0), view.segments[segment].head)
        return None if segment in read or offset >= view.length(segment) else offset

    return walk_cut(view, first_unread)


def map_relocated(view: StreamView, cut: StreamCut) -> StreamCut | None:
    """The place that corresponds to a cut whose segments were removed when events of the stream were replaced. None if
    it is not known, or no reader could be there.

    A reader that is before the replaced events, or has read only removed events after their start, is placed before the
    replacement. A reader that is further continues after the replacement, with the first event that it has not read.
    """
    at: Mapping[SegmentId, int] | None = cut.as_dict()
    for move in view.relocations:
        if at and at.keys() & {each.segment for each in move.standing}:
            at = _moved(move, at)
    if not at or not at.keys() <= view.segments.keys():
        return None
    found = StreamCut.of(view.info.id, skip_exhausted(view, at))
    try:
        return check_cut(view, found)
    except (InvalidCut, Truncated):
        return None


def _moved(move: Relocation, at: Mapping[SegmentId, int]) -> dict[SegmentId, int] | None:
    relocated_cuts = {each.segment: each for each in move.standing}
    found: dict[SegmentId, int] = {}
    for segment, offset in at.items():
        relocated = relocated_cuts.get(segment)
        if relocated is None:
            return None
        if relocated.front is not None and (offset <= relocated.after or relocated.behind is None):
            found[relocated.front] = min(offset, relocated.place)
            continue
        if relocated.behind is None or (offset <= relocated.after and relocated.place):
            return None
        later = [
            each for each in move.kept if (each.old, each.new) == (segment, relocated.behind) and each.stop > offset
        ]
        first = min(later, key=lambda each: each.start, default=None)
        found[relocated.behind] = relocated.end if first is None else first.at + max(0, offset - first.start)
    return found


def covers(view: StreamView, cut: StreamCut) -> bool:
    """True if the key ranges of the cut's segments cover the key space exactly once."""
    return covers_once(view.segments[segment].range for segment, _ in cut)


def read_offsets(view: StreamView, cut: StreamCut) -> dict[SegmentId, int]:
    """How far a reader has read that started at the head and is at `cut`: for each segment it has begun, the offset
    after its last event. Raises InvalidCut if no order-preserving reader could be there."""
    graph, at = SegmentGraph.of(view), cut.as_dict()
    frontier = set(graph.roots)
    read: dict[SegmentId, int] = {}
    for handover in graph.handovers:
        if frontier.issuperset(handover.before) and at.keys().isdisjoint(handover.before):
            frontier.difference_update(handover.before)
            frontier.update(handover.after)
            read.update((segment, view.length(segment)) for segment in handover.before)
    if frontier != at.keys():
        raise InvalidCut("the cut holds a segment together with one that must be read before it")
    return read | at


def end_offsets(view: StreamView, end: StreamCut) -> dict[SegmentId, int]:
    """`read_offsets` of a reader that stops at `end`, whose offsets in open segments may be ahead of the tail. Raises
    InvalidCut, Truncated."""
    ahead = {segment: offset for segment, offset in end if segment in view.segments and not view.sealed(segment)}
    present = {segment: min(offset, view.length(segment)) for segment, offset in ahead.items()}
    return read_offsets(view, check_cut(view, StreamCut.of(end.stream, end.as_dict() | present))) | ahead


def is_before(view: StreamView, first: StreamCut, second: StreamCut) -> bool:
    """True if every event before `first` is also before `second`. Equal places are `before` each other; of two
    concurrent cuts, neither is. Raises InvalidCut."""
    end_offsets = read_offsets(view, second)
    return all(offset <= _reach(view, end_offsets, segment) for segment, offset in read_offsets(view, first).items())


def compare(view: StreamView, first: StreamCut, second: StreamCut) -> Order:
    """How `first` relates to `second`. Cuts with different texts may be the `SAME` place: the end of a segment is the
    head of its successors. Raises InvalidCut."""
    not_behind, not_ahead = is_before(view, first, second), is_before(view, second, first)
    if not_behind:
        return Order.SAME if not_ahead else Order.BEFORE
    return Order.AFTER if not_ahead else Order.CONCURRENT


def union(view: StreamView, first: StreamCut, second: StreamCut) -> StreamCut:
    """The place before which are all events that are before at least one of the two. Raises InvalidCut."""
    one, other = read_offsets(view, first), read_offsets(view, second)
    ends = {s: max(_reach(view, one, s), _reach(view, other, s)) for s in one.keys() | other.keys()}
    return _cut_at(view, ends)


def intersection(view: StreamView, first: StreamCut, second: StreamCut) -> StreamCut:
    """The place before which are exactly the events that are before both. Raises InvalidCut."""
    one, other = read_offsets(view, first), read_offsets(view, second)
    return _cut_at(view, {s: min(one[s], other[s]) for s in one.keys() & other.keys()})


def _cut_at(view: StreamView, ends: Mapping[SegmentId, int]) -> StreamCut:
    """The cut of a reader that has read this far in each segment it has begun; the inverse of `read_offsets`."""
    graph = SegmentGraph.of(view)
    start = {segment: _reach(view, ends, segment) for segment in graph.roots}
    return StreamCut.of(view.info.id, _advance(view, start, graph, ends))


def ranges(view: StreamView, start: StreamCut, end: StreamCut) -> list[tuple[SegmentId, int, int]]:
    """The segment ranges between two cuts, as (segment, first offset, offset after the last), none empty.

    They are in segment order, so every segment comes after those it took over from. Raises InvalidCut if some position
    of `end` is before `start`.
    """
    start_offsets, end_offsets = read_offsets(view, start), read_offsets(view, end)
    found = []
    for segment in sorted(start_offsets.keys() | end_offsets.keys()):
        low, high = _reach(view, start_offsets, segment), _reach(view, end_offsets, segment)
        if high < low:
            raise InvalidCut(f"the end is before the start in segment {segment}: {high} is below {low}")
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
    """The end of one micro-batch that begins at `start` and ends at `stop` at the latest (None: the tail).

    The batch never holds a segment together with its successor. The budget is shared evenly among the segments that
    have events. `bytes_max` is in logical bytes, estimated from the mean event size (see `event_bytes`). A batch holds
    at least one event if any remain; otherwise `start` itself is returned."""
    positions = skip_exhausted(view, start.as_dict())
    limit = {s: view.length(s) for s in positions} if stop is None else read_offsets(view, stop)
    remaining = {s: max(_reach(view, limit, s) - at, 0) for s, at in positions.items()}
    remaining = {s: count for s, count in remaining.items() if count}
    if not remaining:
        return start
    chosen = remaining if events_max is None else divide_evenly(remaining, max(events_max, 1))
    if bytes_max is not None:
        chosen = {s: count for s, count in chosen.items() if count}
        weight = {s: event_bytes(view, s) for s in chosen}
        shares = divide_evenly({s: math.ceil(count * weight[s]) for s, count in chosen.items()}, bytes_max)
        fitting = {s: min(count, int(shares[s] / weight[s])) for s, count in chosen.items()}
        chosen = fitting if any(fitting.values()) else {min(chosen): 1}
    return StreamCut.of(start.stream, {s: at + chosen.get(s, 0) for s, at in positions.items()})


def divide_evenly(needed: Mapping[SegmentId, int], budget: int) -> dict[SegmentId, int]:
    """Divide a budget evenly: no segment gets more than its entry in `needed`. The segments that get less all get the
    same, except for a remainder, which goes one by one to the segments with the largest entries. The whole budget is
    used if the sum of `needed` is at least as large."""
    shares: dict[SegmentId, int] = {}
    left = budget
    for index, segment in enumerate(sorted(needed, key=lambda s: (needed[s], _oldest_first(s)))):
        shares[segment] = min(needed[segment], max(left, 0) // (len(needed) - index))
        left -= shares[segment]
    return shares


def _oldest_first(segment: SegmentId) -> tuple[int, int]:
    # The last segments get the remainders of a division; they should be the oldest ones.
    return -segment.epoch, -segment.number


def event_bytes(view: StreamView, segment: SegmentId) -> float:
    """The mean logical bytes of an event of the segment, estimated from the log that the segment ends in; at least
    1."""
    spans = view.spans.get(segment, ())
    log = view.logs.get(spans[-1].log) if spans else None
    return max(log.size / log.length, 1.0) if log is not None and log.length else 1.0


def walk_cut(
    view: StreamView,
    first_at: Callable[[SegmentId], int | None],
    *,
    pin: tuple[SegmentId, int] | None = None,
) -> StreamCut:
    """The cut with the position `first_at(segment)` in each segment, found by walking from the head.

    `first_at` returns the first wanted offset, or None if the segment holds none; it is called at most once per
    segment. A handover is passed when all its predecessors hold none. `pin` places one segment at an exact offset,
    regardless of what `first_at` returns for it and its predecessors.
    """
    graph = SegmentGraph.of(view)
    read = set() if pin is None else _preceding(graph, pin[0])
    answers: dict[SegmentId, int | None] = {} if pin is None else {pin[0]: pin[1]}

    def first(segment: SegmentId) -> int | None:
        if segment in read:
            return None
        if segment not in answers:
            answers[segment] = first_at(segment)
        return answers[segment]

    frontier = set(graph.roots)
    for handover in graph.handovers:
        if frontier.issuperset(handover.before) and all(first(segment) is None for segment in handover.before):
            frontier.difference_update(handover.before)
            frontier.update(handover.after)
    offsets = {}
    for segment in frontier:
        offset = first(segment)
        offsets[segment] = view.length(segment) if offset is None else max(offset, view.segments[segment].head)
    return StreamCut.of(view.info.id, offsets)


def _preceding(graph: SegmentGraph, segment: SegmentId) -> set[SegmentId]:
    """All segments that must be read before this one."""
    needed = {segment}
    for handover in reversed(graph.handovers):
        if not needed.isdisjoint(handover.after):
            needed.update(handover.before)
    return needed - {segment}


def skip_truncated(view: StreamView, position: StreamCut) -> tuple[StreamCut, int]:
    """The position, moved to the stream's head in each segment whose head is after it; and the number of events between
    the two. If a replacement removed segments of the position, `clamp_to_head` maps it first."""
    if not position.as_dict().keys() <= view.segments.keys():
        position = clamp_to_head(view, position)
    goal = union(view, position, head_cut(view))
    return goal, distance(view, position, goal)
