"""Stitching: the epochs of several stretches one after another, and how the places of their sources map to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch.core.stretch import Piece, Stretch
from anabranch.core.widen import wider
from anabranch.errors import InvalidPointer, SchemaMismatch
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.pointer import EventPointer
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Segment, StreamInfo


class Moved(NamedTuple):
    """The offsets `start <= offset < stop` of a source's segment `old` are the same offsets of the segment `new`."""

    old: SegmentId
    new: SegmentId
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Joined:
    """What an append or a stitch did: `stream` is what came of it. `parts` says, for each source in the order given,
    its id and where its events lie now. `repeats` counts the events that were left out as repeats of others: then their
    places are not told."""

    stream: StreamId
    parts: tuple[tuple[StreamId, tuple[Moved, ...]], ...]
    repeats: int = 0

    def pointers(self, old: EventPointer) -> tuple[EventPointer, ...]:
        """Where an event of a source lies now, in reading order: once for every part that holds it. Raises
        InvalidPointer for a pointer of a stream that was no source."""
        if old.stream not in (source for source, _ in self.parts):
            raise InvalidPointer(f"the pointer belongs to stream {old.stream:016x}, which was not among the sources")
        return tuple(
            EventPointer(self.stream, moved.new, old.offset)
            for source, moves in self.parts
            for moved in moves
            if source == old.stream and moved.old == old.segment and moved.start <= old.offset < moved.stop
        )

    def to_json(self) -> dict[str, object]:
        """As the catalog keeps it."""
        parts = [
            {"source": f"{source:016x}", "moved": [[m.old.packed, m.new.packed, m.start, m.stop] for m in moves]}
            for source, moves in self.parts
        ]
        repeats = {"repeats": self.repeats} if self.repeats else {}
        return {"stream": f"{self.stream:016x}", "parts": parts, **repeats}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Joined:
        """The inverse of `to_json`."""
        parts = tuple(
            (
                StreamId(int(part["source"], 16)),
                tuple(Moved(SegmentId.unpack(m[0]), SegmentId.unpack(m[1]), m[2], m[3]) for m in part["moved"]),
            )
            for part in value["parts"]
        )
        return cls(StreamId(int(value["stream"], 16)), parts, value.get("repeats", 0))


@dataclass(frozen=True, slots=True)
class StitchPlan:
    """The segments that the stretches become, `moved` for each stretch; from `epoch` on `opened` take the appends, or
    where there are none, the last stretch's current segments stay current. `number` is the next that is free."""

    pieces: tuple[Piece, ...]
    moved: tuple[tuple[Moved, ...], ...]
    opened: tuple[Segment, ...]
    epoch: int
    number: int


def plan_stitch(stretches: Sequence[Stretch], *, epoch: int, number: int, opened: Sequence[KeyRange]) -> StitchPlan:
    """The stretches' epochs follow each other from `epoch` on, their segments are numbered from `number` on; an epoch
    of new segments with the key ranges `opened` follows, if there are any.

    Each first epoch of a stretch takes the whole key space over, so all that precedes it is read first.
    """
    assert stretches
    pieces: list[Piece] = []
    moved: list[tuple[Moved, ...]] = []
    for place, stretch in enumerate(stretches):
        ends = bool(opened) or place < len(stretches) - 1
        shift = epoch - min(piece.segment.created for piece in stretch.pieces)
        epoch = stretch.view.info.epoch + shift + 1
        placed = [_placed(piece, shift, number + i, epoch if ends else None) for i, piece in enumerate(stretch.pieces)]
        number += len(placed)
        pieces += placed
        moved.append(
            tuple(
                Moved(old.segment.id, new.segment.id, old.segment.head, old.stop)
                for old, new in zip(stretch.pieces, placed, strict=True)
                if old.segment.head < old.stop
            )
        )
    begun = [Segment(SegmentId(epoch, number + i), part, None, 0) for i, part in enumerate(opened)]
    return StitchPlan(tuple(pieces), tuple(moved), tuple(begun), epoch if begun else epoch - 1, number + len(begun))


def _placed(piece: Piece, shift: int, number: int, end: int | None) -> Piece:
    """A piece as the segment `number`, `shift` epochs later; where it was current, until the epoch `end`."""
    old = piece.segment
    ident = SegmentId(old.created + shift, number)
    retired = end if old.retired is None else old.retired + shift
    spans = tuple(replace(span, segment=ident) for span in piece.spans)
    return Piece(replace(old, id=ident, retired=retired), piece.stop, spans)


def joined_schema(streams: Sequence[StreamInfo]) -> StreamSchema:
    """The columns of what is stitched of these streams, in their order. Raises as `merged_schema`."""
    first, *others = streams
    for each in others:
        first = replace(first, schema=merged_schema(first, each))
    return first.schema


def merged_schema(onto: StreamInfo, source: StreamInfo) -> StreamSchema:
    """The columns of `onto`, and behind them those that `source` has besides. A column that has two types gets the one
    that holds both (`core.widen`). Raises SchemaMismatch where there is none, one is raw and the other is not, or their
    keys or times are other columns."""
    mine, theirs = onto.schema, source.schema
    both = f"'{onto.name}' and '{source.name}'"
    if mine == theirs:
        return mine
    if mine.raw or theirs.raw:
        raise SchemaMismatch(f"{both} can't be joined: one is raw, the other has columns")
    for what, one, other in (("key", mine.key, theirs.key), ("time", mine.time, theirs.time)):
        if one != other:
            columns = f"{one or 'none'} and {other or 'none'}"
            raise SchemaMismatch(f"{both} can't be joined: their {what} columns are {columns}", column=one or other)
    fields = []
    for field in mine.columns:
        index = theirs.columns.get_field_index(field.name)
        other = field.type if index < 0 else theirs.columns.field(index).type
        kind = wider(field.type, other)
        if kind is None:
            kinds = f"{field.type} and {other}"
            raise SchemaMismatch(f"{both} can't be joined: column '{field.name}' is {kinds}", column=field.name)
        fields.append(field.with_type(kind))
    added = [field for field in theirs.columns if field.name not in mine.columns.names]
    return StreamSchema.typed(pa.schema([*fields, *added]), mine.key, mine.time)
