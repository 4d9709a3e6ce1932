"""Stitching: the epochs of several stream slices one after another, and the mapping of source pointers to the
result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch.core.stream_slice import SegmentSlice, StreamSlice
from anabranch.core.type_widening import wider
from anabranch.errors import InvalidPointer, SchemaMismatch
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.pointer import EventPointer
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Segment, StreamInfo


class MovedRange(NamedTuple):
    """The offsets `start <= offset < stop` of a source's segment `old` are the same offsets in the segment `new`."""

    old: SegmentId
    new: SegmentId
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of an append or a stitch: `stream` is the resulting stream. `parts` gives, for each source in the
    order given, its id and where its events are now. `repeats` counts the events left out as repeats of others; if
    there are any, `parts` doesn't say where the events are now."""

    stream: StreamId
    parts: tuple[tuple[StreamId, tuple[MovedRange, ...]], ...]
    repeats: int = 0

    def pointers(self, old: EventPointer) -> tuple[EventPointer, ...]:
        """Where an event of a source is now, in reading order: once for every part that holds it. Raises InvalidPointer
        for a pointer of a stream that was not a source."""
        if old.stream not in (source for source, _ in self.parts):
            raise InvalidPointer(f"the pointer belongs to stream {old.stream:016x}, which was not among the sources")
        return tuple(
            EventPointer(self.stream, moved.new, old.offset)
            for source, moves in self.parts
            for moved in moves
            if source == old.stream and moved.old == old.segment and moved.start <= old.offset < moved.stop
        )

    def to_json(self) -> dict[str, object]:
        """The form stored in the catalog."""
        parts = [
            {"source": f"{source:016x}", "moved": [[m.old.packed, m.new.packed, m.start, m.stop] for m in moves]}
            for source, moves in self.parts
        ]
        repeats = {"repeats": self.repeats} if self.repeats else {}
        return {"stream": f"{self.stream:016x}", "parts": parts, **repeats}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JoinResult:
        """The inverse of `to_json`."""
        parts = tuple(
            (
                StreamId(int(part["source"], 16)),
                tuple(MovedRange(SegmentId.unpack(m[0]), SegmentId.unpack(m[1]), m[2], m[3]) for m in part["moved"]),
            )
            for part in value["parts"]
        )
        return cls(StreamId(int(value["stream"], 16)), parts, value.get("repeats", 0))


@dataclass(frozen=True, slots=True)
class StitchPlan:
    """The segments that the slices become, and for each slice, in `moved`, where its events are now. From `epoch` on,
    `opened` take the appends; if there are none, the last slice's current segments stay current. `number` is the next
    free segment number."""

    slices: tuple[SegmentSlice, ...]
    moved: tuple[tuple[MovedRange, ...], ...]
    opened: tuple[Segment, ...]
    epoch: int
    number: int


def plan_stitch(slices: Sequence[StreamSlice], *, epoch: int, number: int, opened: Sequence[KeyRange]) -> StitchPlan:
    """Place the slices one after another: their epochs from `epoch` on, their segments numbered from `number` on. An
    epoch of new segments with the key ranges `opened` follows, if any are given.

    The first epoch of each slice takes over the whole key space, so everything before it is read first.
    """
    assert slices
    segment_slices: list[SegmentSlice] = []
    moved: list[tuple[MovedRange, ...]] = []
    for index, stream_slice in enumerate(slices):
        ends = bool(opened) or index < len(slices) - 1
        shift = epoch - min(segment_slice.segment.created for segment_slice in stream_slice.segments)
        epoch = stream_slice.view.info.epoch + shift + 1
        renumbered = [
            _renumber(segment_slice, shift, number + i, epoch if ends else None)
            for i, segment_slice in enumerate(stream_slice.segments)
        ]
        number += len(renumbered)
        segment_slices += renumbered
        moved.append(
            tuple(
                MovedRange(old.segment.id, new.segment.id, old.segment.head, old.stop)
                for old, new in zip(stream_slice.segments, renumbered, strict=True)
                if old.segment.head < old.stop
            )
        )
    new_segments = [Segment(SegmentId(epoch, number + i), part, None, 0) for i, part in enumerate(opened)]
    return StitchPlan(
        tuple(segment_slices),
        tuple(moved),
        tuple(new_segments),
        epoch if new_segments else epoch - 1,
        number + len(new_segments),
    )


def _renumber(segment_slice: SegmentSlice, shift: int, number: int, end: int | None) -> SegmentSlice:
    """The slice of a segment as the segment `number`, `shift` epochs later; if it was current, it lasts until the epoch
    `end`."""
    old = segment_slice.segment
    ident = SegmentId(old.created + shift, number)
    retired = end if old.retired is None else old.retired + shift
    spans = tuple(replace(span, segment=ident) for span in segment_slice.spans)
    return SegmentSlice(replace(old, id=ident, retired=retired), segment_slice.stop, spans)


def joined_schema(streams: Sequence[StreamInfo]) -> StreamSchema:
    """The columns of the streams stitched together, in their order. Raises as `merged_schema`."""
    first, *others = streams
    for each in others:
        first = replace(first, schema=merged_schema(first, each))
    return first.schema


def merged_schema(onto: StreamInfo, source: StreamInfo) -> StreamSchema:
    """The columns of `onto`, followed by the additional ones of `source`. A column with two types gets the type that
    holds both (`core.type_widening`). Raises SchemaMismatch if there is none, if only one of the two is raw, or if
    their keys or times are different columns."""
    first, second = onto.schema, source.schema
    both = f"'{onto.name}' and '{source.name}'"
    if first == second:
        return first
    if first.raw or second.raw:
        raise SchemaMismatch(f"can't join {both}: one is raw, the other has columns")
    for what, one, other in (("key", first.key, second.key), ("time", first.time, second.time)):
        if one != other:
            columns = f"{one or 'none'} and {other or 'none'}"
            raise SchemaMismatch(f"can't join {both}: their {what} columns are {columns}", column=one or other)
    fields = []
    for field in first.columns:
        index = second.columns.get_field_index(field.name)
        other = field.type if index < 0 else second.columns.field(index).type
        kind = wider(field.type, other)
        if kind is None:
            kinds = f"{field.type} and {other}"
            raise SchemaMismatch(f"can't join {both}: column '{field.name}' is {kinds}", column=field.name)
        fields.append(field.with_type(kind))
    added = [field for field in second.columns if field.name not in first.columns.names]
    return StreamSchema.typed(pa.schema([*fields, *added]), first.key, first.time).with_checks(first.checks)
