"""Compares two streams by their spans, without reading events: where they view the same bytes, and where they
diverge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from anabranch.core.cuts import Handover, SegmentGraph
from anabranch.core.ranges import kept_runs, union
from anabranch.core.spans import locate, offset_of
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.stream import StreamView

Range = tuple[SegmentId, int, int]


class SharedRange(NamedTuple):
    """The `events` events from offset `start` of `segment` in one stream are, byte for byte, those from offset
    `other_start` of `other` in the other stream."""

    segment: SegmentId
    start: int
    other: SegmentId
    other_start: int
    events: int


@dataclass(frozen=True, slots=True)
class DiffPlan:
    """`shared`: every pair of places where both view the same bytes. `only_first` and `only_second`: what only one of them views.
    `common_until`: a cut of each stream, up to which readers of both get exactly the same events from the head on."""

    shared: tuple[SharedRange, ...]
    only_first: tuple[Range, ...]
    only_second: tuple[Range, ...]
    common_until: tuple[StreamCut, StreamCut]


class _LogRun(NamedTuple):
    """A readable part of a segment within one log: positions `start <= position < stop`, from the segment's `offset`
    on."""

    log: LogId
    start: int
    stop: int
    segment: SegmentId
    offset: int


def plan_diff(one: StreamView, other: StreamView) -> DiffPlan:
    """Compare two streams as of their views."""
    first, second = _runs(one), _runs(other)
    by_log: dict[LogId, list[_LogRun]] = {}
    for run in second:
        by_log.setdefault(run.log, []).append(run)
    shared = _joined(part for run in first for part in _common(run, by_log.get(run.log, ())))
    own = _subtract(first, [(s.segment, s.start, s.start + s.events) for s in shared])
    others = _subtract(second, [(s.other, s.other_start, s.other_start + s.events) for s in shared])
    return DiffPlan(shared, own, others, _common_prefix(one, other))


def _runs(view: StreamView) -> list[_LogRun]:
    return [run for segment in view.ordered for run in _runs_of(view, segment.id)]


def _runs_of(view: StreamView, segment: SegmentId) -> list[_LogRun]:
    found = locate(view.spans.get(segment, ()), view.segments[segment].head, view.length(segment))
    return [_LogRun(span.log, low, high, segment, offset_of(span, low)) for span, low, high in found]


def _common(run: _LogRun, others: Iterable[_LogRun]) -> list[SharedRange]:
    found = []
    for other in others:
        low, high = max(run.start, other.start), min(run.stop, other.stop)
        if low < high:
            first, second = run.offset + low - run.start, other.offset + low - other.start
            found.append(SharedRange(run.segment, first, other.segment, second, high - low))
    return found


def _joined(parts: Iterable[SharedRange]) -> tuple[SharedRange, ...]:
    """The ranges in order, adjacent ones merged."""
    found: list[SharedRange] = []
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


def _subtract(runs: Iterable[_LogRun], taken: Iterable[Range]) -> tuple[Range, ...]:
    """The offsets of the runs that are in no taken range, adjacent ones merged."""
    by_segment: dict[SegmentId, list[tuple[int, int]]] = {}
    for segment, start, stop in taken:
        by_segment.setdefault(segment, []).append((start, stop))
    left: dict[SegmentId, list[tuple[int, int]]] = {}
    for run in runs:
        stop = run.offset + run.stop - run.start
        left.setdefault(run.segment, []).extend(kept_runs(run.offset, stop, sorted(by_segment.get(run.segment, ()))))
    return tuple((segment, *part) for segment in sorted(left) for part in union(left[segment]))


def _common_prefix(one: StreamView, other: StreamView) -> tuple[StreamCut, StreamCut]:
    """Walk both from the head, turn by turn, as long as key ranges and bytes are the same."""
    first, second = SegmentGraph.of(one), SegmentGraph.of(other)
    pairs = _paired(one, first.roots, other, second.roots) or {}
    handover_of: dict[SegmentId, Handover] = {
        segment: handover for handover in second.handovers for segment in handover.before
    }
    positions = {segment: _common_events(one, segment, other, pairs.get(segment)) for segment in first.roots}
    for handover in first.handovers:
        if not positions.keys() >= set(handover.before) or not all(
            _is_exhausted(one, s, positions[s]) and s in pairs and _is_exhausted(other, pairs[s], positions[s])
            for s in handover.before
        ):
            continue
        counterpart = handover_of.get(pairs[handover.before[0]])
        successors = None
        if counterpart is not None and set(counterpart.before) == {pairs[segment] for segment in handover.before}:
            successors = _paired(one, handover.after, other, counterpart.after)
        if successors is None:
            continue
        pairs |= successors
        for segment in handover.before:
            del positions[segment]
        positions |= {segment: _common_events(one, segment, other, successors[segment]) for segment in handover.after}
    first_offsets = {segment: one.segments[segment].head + count for segment, count in positions.items()}
    if not positions.keys() <= pairs.keys():  # even their first segments have different key ranges
        heads = {segment: other.segments[segment].head for segment in second.roots}
        return StreamCut.of(one.info.id, first_offsets), StreamCut.of(other.info.id, heads)
    second_offsets = {
        pairs[segment]: other.segments[pairs[segment]].head + count for segment, count in positions.items()
    }
    return StreamCut.of(one.info.id, first_offsets), StreamCut.of(other.info.id, second_offsets)


def _paired(
    one: StreamView, segments: Iterable[SegmentId], other: StreamView, others: Iterable[SegmentId]
) -> dict[SegmentId, SegmentId] | None:
    """Pairs the segments with equal key ranges; None if the ranges differ."""
    first: dict[KeyRange, SegmentId] = {one.segments[segment].range: segment for segment in segments}
    second: dict[KeyRange, SegmentId] = {other.segments[segment].range: segment for segment in others}
    return {first[part]: second[part] for part in first} if first.keys() == second.keys() else None


def _common_events(one: StreamView, segment: SegmentId, other: StreamView, counterpart: SegmentId | None) -> int:
    """How many events both segments have in common, starting at their heads."""
    if counterpart is None:
        return 0
    first, second = _bytes_of(one, segment), _bytes_of(other, counterpart)
    count = 0
    for (log, start, stop), (other_log, other_start, other_stop) in zip(first, second, strict=False):
        if (log, start) != (other_log, other_start):
            break
        count += min(stop, other_stop) - start
        if stop != other_stop:
            break
    return count


def _bytes_of(view: StreamView, segment: SegmentId) -> list[tuple[LogId, int, int]]:
    """The log ranges that a segment views, adjacent ones merged."""
    runs = _runs_of(view, segment)
    edges = [0, *(i for i, (a, b) in enumerate(pairwise(runs), 1) if (a.log, a.stop) != (b.log, b.start)), len(runs)]
    return [(runs[a].log, runs[a].start, runs[b - 1].stop) for a, b in pairwise(edges) if a < b]


def _is_exhausted(view: StreamView, segment: SegmentId, count: int) -> bool:
    return view.segments[segment].head + count >= view.length(segment)
