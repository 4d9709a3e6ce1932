"""Where two streams view the same bytes, and where they part: told from their spans, without a look at an event."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from anabranch.core.cuts import Lineage, Turn
from anabranch.core.spans import locate, offset_of
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.stream import StreamView

Range = tuple[SegmentId, int, int]


class Shared(NamedTuple):
    """So many events from `start` on of `segment` in one stream are, byte for byte, those from `other_start` on of
    `other` in the other stream."""

    segment: SegmentId
    start: int
    other: SegmentId
    other_start: int
    events: int


@dataclass(frozen=True, slots=True)
class DiffPlan:
    """`shared`: where both view the same bytes, every pair of places; `own` and `others`: what only one of them views.
    Up to the cuts `alike`, one for each, readers of both get the very same events from the head on."""

    shared: tuple[Shared, ...]
    own: tuple[Range, ...]
    others: tuple[Range, ...]
    alike: tuple[StreamCut, StreamCut]


class _Run(NamedTuple):
    """A readable part of a segment that lies in one log: positions `start <= position < stop`, from `offset` on."""

    log: LogId
    start: int
    stop: int
    segment: SegmentId
    offset: int


def plan_diff(one: StreamView, other: StreamView) -> DiffPlan:
    """Compare two streams as they were seen."""
    mine, theirs = _runs(one), _runs(other)
    by_log: dict[LogId, list[_Run]] = {}
    for run in theirs:
        by_log.setdefault(run.log, []).append(run)
    shared = _joined(part for run in mine for part in _common(run, by_log.get(run.log, ())))
    own = _without(mine, [(s.segment, s.start, s.start + s.events) for s in shared])
    others = _without(theirs, [(s.other, s.other_start, s.other_start + s.events) for s in shared])
    return DiffPlan(shared, own, others, _alike(one, other))


def _runs(view: StreamView) -> list[_Run]:
    return [run for segment in view.ordered for run in _runs_of(view, segment.id)]


def _runs_of(view: StreamView, segment: SegmentId) -> list[_Run]:
    found = locate(view.spans.get(segment, ()), view.segments[segment].head, view.length(segment))
    return [_Run(span.log, low, high, segment, offset_of(span, low)) for span, low, high in found]


def _common(run: _Run, others: Iterable[_Run]) -> list[Shared]:
    found = []
    for other in others:
        low, high = max(run.start, other.start), min(run.stop, other.stop)
        if low < high:
            mine, theirs = run.offset + low - run.start, other.offset + low - other.start
            found.append(Shared(run.segment, mine, other.segment, theirs, high - low))
    return found


def _joined(parts: Iterable[Shared]) -> tuple[Shared, ...]:
    """Neighbours as one, in order."""
    found: list[Shared] = []
    for part in sorted(parts, key=lambda p: (p.segment, p.other, p.start - p.other_start, p.start)):
        last = found[-1] if found else None
        follows = last is not None and (part.segment, part.start, part.other, part.other_start) == (
            last.segment,
            last.start + last.events,
            last.other,
            last.other_start + last.events,
        )
        if last is not None and follows:
            found[-1] = last._replace(events=last.events + part.events)
        else:
            found.append(part)
    return tuple(sorted(found))


def _without(runs: Iterable[_Run], taken: Iterable[Range]) -> tuple[Range, ...]:
    """The offsets of the runs that no range has taken, neighbours as one."""
    by_segment: dict[SegmentId, list[tuple[int, int]]] = {}
    for segment, start, stop in taken:
        by_segment.setdefault(segment, []).append((start, stop))
    left: list[Range] = []
    for run in runs:
        at, end = run.offset, run.offset + run.stop - run.start
        for start, stop in [*sorted(by_segment.get(run.segment, ())), (end, end)]:
            if at < min(start, end):
                left.append((run.segment, at, min(start, end)))
            at = max(at, stop)
    return _merged(left)


def _merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    found: list[Range] = []
    for segment, start, stop in sorted(ranges):
        if found and found[-1][0] == segment and found[-1][2] >= start:
            found[-1] = (segment, found[-1][1], max(stop, found[-1][2]))
        else:
            found.append((segment, start, stop))
    return tuple(found)


def _alike(one: StreamView, other: StreamView) -> tuple[StreamCut, StreamCut]:
    """Walk both from the head, turn by turn, for as long as key ranges and bytes are the same."""
    mine, theirs = Lineage.of(one), Lineage.of(other)
    pairs = _paired(one, mine.roots, other, theirs.roots) or {}
    turn_of: dict[SegmentId, Turn] = {segment: turn for turn in theirs.turns for segment in turn.before}
    standing = {segment: _same(one, segment, other, pairs.get(segment)) for segment in mine.roots}
    for turn in mine.turns:
        if not standing.keys() >= set(turn.before) or not all(
            _whole(one, s, standing[s]) and s in pairs and _whole(other, pairs[s], standing[s]) for s in turn.before
        ):
            continue
        twin = turn_of.get(pairs[turn.before[0]])
        following = None
        if twin is not None and set(twin.before) == {pairs[segment] for segment in turn.before}:
            following = _paired(one, turn.after, other, twin.after)
        if following is None:
            continue
        pairs |= following
        for segment in turn.before:
            del standing[segment]
        standing |= {segment: _same(one, segment, other, following[segment]) for segment in turn.after}
    ours = {segment: one.segments[segment].head + count for segment, count in standing.items()}
    if not standing.keys() <= pairs.keys():  # not even their first segments have the same key ranges
        return StreamCut.of(one.info.id, ours), StreamCut.of(other.info.id, _heads(other, theirs.roots))
    twins = {pairs[segment]: other.segments[pairs[segment]].head + count for segment, count in standing.items()}
    return StreamCut.of(one.info.id, ours), StreamCut.of(other.info.id, twins)


def _heads(view: StreamView, segments: Iterable[SegmentId]) -> dict[SegmentId, int]:
    return {segment: view.segments[segment].head for segment in segments}


def _paired(
    one: StreamView, segments: Iterable[SegmentId], other: StreamView, others: Iterable[SegmentId]
) -> dict[SegmentId, SegmentId] | None:
    """Segments by the same key range; None where these differ."""
    mine: dict[KeyRange, SegmentId] = {one.segments[segment].range: segment for segment in segments}
    theirs: dict[KeyRange, SegmentId] = {other.segments[segment].range: segment for segment in others}
    return {mine[part]: theirs[part] for part in mine} if mine.keys() == theirs.keys() else None


def _same(one: StreamView, segment: SegmentId, other: StreamView, twin: SegmentId | None) -> int:
    """How many events both segments have in common from their heads on."""
    if twin is None:
        return 0
    mine, theirs = _bytes_of(one, segment), _bytes_of(other, twin)
    count = 0
    for (log, start, stop), (other_log, other_start, other_stop) in zip(mine, theirs, strict=False):
        if (log, start) != (other_log, other_start):
            break
        count += min(stop, other_stop) - start
        if stop != other_stop:
            break
    return count


def _bytes_of(view: StreamView, segment: SegmentId) -> list[tuple[LogId, int, int]]:
    """What a segment views, neighbours in one log as one."""
    runs = _runs_of(view, segment)
    edges = [0, *(i for i, (a, b) in enumerate(pairwise(runs), 1) if (a.log, a.stop) != (b.log, b.start)), len(runs)]
    return [(runs[a].log, runs[a].start, runs[b - 1].stop) for a, b in pairwise(edges) if a < b]


def _whole(view: StreamView, segment: SegmentId, count: int) -> bool:
    return view.segments[segment].head + count >= view.length(segment)
