"""A stream slice without the events that a filter leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from anabranch import limits
from anabranch.core.copy import CopiedRange, Filtered
from anabranch.core.spans import join_spans, locate, offset_of
from anabranch.core.stream_slice import SegmentSlice, StreamSlice
from anabranch.model.ids import LogId, SegmentId
from anabranch.model.stream import Span


class KeptEvents(NamedTuple):
    """Events of a segment that a copy keeps, at `start <= offset < stop` of the source. Without a `log` these are all
    events there, viewed where they are. Otherwise they are `events` of them, stored again in this log, alone and in
    the same order; `runs` says which, or is None if they are too scattered to say."""

    start: int
    stop: int
    events: int
    log: LogId | None
    runs: tuple[tuple[int, int], ...] | None


def in_place(start: int, stop: int) -> KeptEvents:
    """Neighbouring events that stay where they are."""
    return KeptEvents(start, stop, stop - start, None, ((start, stop),))


def filtered_slice(
    part: StreamSlice, kept: Mapping[SegmentId, Sequence[KeptEvents]]
) -> tuple[StreamSlice, list[CopiedRange] | None]:
    """The slice with nothing but the kept events, which are in offset order, and where these are now. In each segment
    the offsets begin where they did and leave no gap: a segment that is kept entirely does not change. The second
    result is None if it is not known. Takes O(n log n) in spans and kept events."""
    ranges: list[CopiedRange] = []
    known = True
    slices = []
    for piece in part.segments:
        segment, at = piece.segment, piece.segment.head
        spans: list[Span] = []
        for each in kept.get(segment.id, ()):
            if each.log is None:
                found = [
                    Span(segment.id, offset_of(span, low) + at - each.start, span.log, low, high)
                    for span, low, high in locate(piece.spans, each.start, each.stop)
                ]
            else:
                found = [Span(segment.id, at, each.log, 0, each.events)]
            spans[-1:] = join_spans(spans[-1:], found)
            known = known and each.runs is not None
            reach = at
            for start, stop in each.runs or ():
                ranges.append(CopiedRange(segment.id, start, stop, reach))
                reach += stop - start
            at += each.events
        slices.append(SegmentSlice(segment, at, tuple(spans)))
    assert all(one.stop <= other.start for each in kept.values() for one, other in pairwise(each))
    return replace(part, segments=tuple(slices)), _joined(ranges) if known else None


def summary(
    where: str, kept: Mapping[SegmentId, Sequence[KeptEvents]], ranges: Sequence[CopiedRange] | None
) -> Filtered:
    """What a copy of the kept events holds."""
    found = [each for events in kept.values() for each in events]
    recorded = ranges is not None and len(ranges) <= limits.REPLACE_MOVES_MAX
    return Filtered(
        where,
        sum(each.events for each in found),
        sum(each.events for each in found if each.log is not None),
        tuple(ranges) if ranges is not None and recorded else None,
    )


def _joined(ranges: Sequence[CopiedRange]) -> list[CopiedRange]:
    """Ranges that continue one another are one."""
    found: list[CopiedRange] = []
    for each in ranges:
        last = found[-1] if found else None
        if last is not None and (last.segment, last.stop) == (each.segment, each.start):
            found[-1] = last._replace(stop=each.stop)
        else:
            found.append(each)
    return found
