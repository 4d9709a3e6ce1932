"""Plans a replacement of events of a stream in place: which events are kept, and what replaces the others, as new
segments of the same stream.

The stream becomes three layers, one after the other: the events before the cut, then the replacement, then the events
after the cut, without the removed ones. All segments are new, so that no old pointer ever refers to a
different event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from anabranch import limits
from anabranch.core.cuts import head_cut, read_offsets, tail_cut
from anabranch.core.ranges import kept_runs
from anabranch.core.spans import join_spans, locate, offset_of
from anabranch.core.stitch import MovedRange
from anabranch.core.stream_slice import SegmentSlice
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.relocation import Kept, RelocatedCut, Relocation
from anabranch.model.stream import Segment, Span, StreamView

Run = tuple[int, int]
"""Neighbouring offsets of a segment, `start <= offset < stop`."""


@dataclass(frozen=True, slots=True)
class RewrittenRuns:
    """A second copy of the events of these runs of a segment, together in `log`, from its beginning, in the same
    order."""

    segment: SegmentId
    runs: tuple[Run, ...]
    log: LogId

    @property
    def events(self) -> int:
        """The number of events."""
        return sum(stop - start for start, stop in self.runs)


@dataclass(frozen=True, slots=True)
class ReplacePlan:
    """The stream's new segments. From `epoch` on, `opened` take the appends; if there are none, the last layer's
    segments stay current. `number` is the next free segment number. `kept` and `added` say where the kept events and
    the inserted events are; `kept` is incomplete if it has more than `limits.REPLACE_MOVES_MAX` entries."""

    slices: tuple[SegmentSlice, ...]
    opened: tuple[Segment, ...]
    epoch: int
    number: int
    kept: tuple[Kept, ...]
    added: tuple[MovedRange, ...]
    relocation: Relocation
    removed: int
    rewritten: int


class _Member(NamedTuple):
    """The part of a segment that is in a layer. Epochs are counted from the layer's first epoch. `retired` is None if
    the part lasts to the layer's end."""

    segment: Segment
    created: int
    retired: int | None
    start: int
    stop: int


def plan_replace(
    view: StreamView,
    cut: StreamCut,
    removed: Mapping[SegmentId, Sequence[Run]],
    source: tuple[StreamView, StreamCut, StreamCut] | None,
    *,
    rewritten: Sequence[RewrittenRuns] = (),
    opened: Sequence[KeyRange],
) -> ReplacePlan:
    """Put the events between two cuts of `source` into the stream at `cut`, and leave out the `removed` events after
    it.

    `removed` holds runs in offset order, none of them before the cut. Runs that were `rewritten` are viewed in their
    new log. Takes O(n log n) in segments, spans and runs.
    """
    return _ReplacePlanner(view, removed, rewritten).run(cut, source, opened)


class _ReplacePlanner:
    def __init__(
        self, view: StreamView, removed: Mapping[SegmentId, Sequence[Run]], rewritten: Sequence[RewrittenRuns]
    ) -> None:
        self._view = view
        self._removed = removed
        self._rewritten_groups = {(each.segment, each.runs[0]): each for each in rewritten}
        self._epoch = view.info.epoch + 1
        self._number = view.info.next_number
        self._segment_slices: list[SegmentSlice] = []
        self._last: list[int] = []  # indexes in `_segment_slices` of the current segments so far
        self._rewritten = 0

    def run(
        self, cut: StreamCut, source: tuple[StreamView, StreamCut, StreamCut] | None, opened: Sequence[KeyRange]
    ) -> ReplacePlan:
        view = self._view
        front, behind = _layer(view, head_cut(view), cut), _layer(view, cut, tail_cut(view))
        kept: list[Kept] = []
        front_ids: dict[SegmentId, SegmentId] = {}
        if any(each.start < each.stop for each in front):
            front_ids, runs = self._add(view, front, {})
            kept += runs
        added: list[Kept] = []
        if source is not None:
            found = _layer(*source)
            if any(each.start < each.stop for each in found):
                _, added = self._add(source[0], found, {})
        behind_ids, runs = self._add(view, behind, self._removed)
        kept += runs
        count = sum(stop - start for runs in self._removed.values() for start, stop in runs)
        segments = tuple(
            Segment(SegmentId(self._epoch, self._number + number), part, None, 0) for number, part in enumerate(opened)
        )
        if segments:
            self._retire()
        return ReplacePlan(
            tuple(self._segment_slices),
            segments,
            self._epoch if segments else self._epoch - 1,
            self._number + len(segments),
            tuple(kept),
            tuple(MovedRange(each.old, each.new, each.start, each.stop) for each in added),
            Relocation(tuple(self._relocated_cuts(cut, front_ids, behind_ids)), tuple(kept)),
            count,
            self._rewritten,
        )

    def _add(
        self, view: StreamView, layer: Sequence[_Member], removed: Mapping[SegmentId, Sequence[Run]]
    ) -> tuple[dict[SegmentId, SegmentId], list[Kept]]:
        """Append a layer after the others. Returns the new id of each segment, and the new offsets of the events."""
        self._retire()
        ids: dict[SegmentId, SegmentId] = {}
        kept: list[Kept] = []
        first = self._epoch
        self._last = []
        for member in layer:
            ident = SegmentId(first + member.created, self._number)
            self._number += 1
            ids[member.segment.id] = ident
            runs = kept_runs(member.start, member.stop, removed.get(member.segment.id, ()))
            head = member.stop - sum(stop - start for start, stop in runs)
            spans, at = self._spans(view, member.segment.id, ident, runs, head), head
            for start, stop in runs:
                if removed and len(kept) > limits.REPLACE_MOVES_MAX:  # too scattered to record
                    break
                kept.append(Kept(member.segment.id, start, stop, ident, at))
                at += stop - start
            retired = None if member.retired is None else first + member.retired
            if retired is None:
                self._last.append(len(self._segment_slices))
            segment = Segment(ident, member.segment.range, retired, head)
            self._segment_slices.append(SegmentSlice(segment, member.stop, spans))
        self._epoch = first + max(member.created for member in layer) + 1
        return ids, kept

    def _retire(self) -> None:
        """Retire the segments that are current so far, at the next epoch."""
        for index in self._last:
            segment_slice = self._segment_slices[index]
            self._segment_slices[index] = replace(
                segment_slice, segment=replace(segment_slice.segment, retired=self._epoch)
            )
        self._last = []

    def _spans(
        self, view: StreamView, segment: SegmentId, ident: SegmentId, runs: Sequence[Run], at: int
    ) -> tuple[Span, ...]:
        spans: list[Span] = []
        skip = 0
        for number, (start, stop) in enumerate(runs):
            if number < skip:
                continue
            group = self._rewritten_groups.get((segment, (start, stop)))
            if group is not None and tuple(runs[number : number + len(group.runs)]) == group.runs:
                events = group.events
                found: tuple[Span, ...] = (Span(ident, at, group.log, 0, events),)
                skip = number + len(group.runs)
                self._rewritten += events
                at += events
            else:
                shift = at - start
                found = tuple(
                    Span(ident, offset_of(span, low) + shift, span.log, low, high)
                    for span, low, high in locate(view.spans.get(segment, ()), start, stop)
                )
                at += stop - start
            spans[-1:] = join_spans(spans[-1:], found)
        return tuple(spans)

    def _relocated_cuts(
        self, cut: StreamCut, front_ids: Mapping[SegmentId, SegmentId], behind_ids: Mapping[SegmentId, SegmentId]
    ) -> list[RelocatedCut]:
        passed = read_offsets(self._view, cut)
        found = []
        for segment in self._view.ordered:
            at = passed.get(segment.id, -1)  # -1: a reader that has begun this segment is after the cut
            first = next(iter(self._removed.get(segment.id, ())), None)
            after = first[1] if first is not None and first[0] == at else at
            front, behind = front_ids.get(segment.id), behind_ids.get(segment.id)
            found.append(RelocatedCut(segment.id, at, after, front, behind, self._view.length(segment.id)))
        return found


def rewrite_groups(runs: Sequence[Run], *, view_min: int, runs_min: int, events_max: int) -> list[tuple[Run, ...]]:
    """Groups of kept runs that are worth rewriting together: at least `runs_min` neighbouring runs of less than
    `view_min` events each, with at most `events_max` events in a group. Longer runs are viewed in place."""
    found: list[list[Run]] = [[]]
    size = 0
    for start, stop in runs:
        count = stop - start
        if found[-1] and (count >= view_min or size + count > events_max):
            found.append([])
            size = 0
        if count < view_min:
            found[-1].append((start, stop))
            size += count
    return [tuple(group) for group in found if len(group) >= runs_min]


def _layer(view: StreamView, start: StreamCut, end: StreamCut) -> list[_Member]:
    """The parts of segments between two cuts, without segments that a reader going from one cut to the other never
    reads."""
    start_offsets, end_offsets = read_offsets(view, start), read_offsets(view, end)
    first, last = start.as_dict(), end.as_dict()
    chosen = [
        each for each in view.ordered if each.id in end_offsets and (each.id not in start_offsets or each.id in first)
    ]
    epochs = sorted({each.created for each in chosen if each.id not in first})
    rank = {epoch: number for number, epoch in enumerate(epochs, 1)}
    found = []
    for segment in chosen:
        created = 0 if segment.id in first else rank[segment.created]
        retired = None if segment.id in last or segment.retired is None else rank[segment.retired]
        low = start_offsets.get(segment.id, segment.head)
        found.append(_Member(segment, created, retired, low, max(low, end_offsets[segment.id])))
    return found
