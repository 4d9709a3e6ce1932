"""The result of a replacement by time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.errors import InvalidPointer
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer


class Relocated(NamedTuple):
    """Offsets `start <= offset < stop` of the former segment `old` of `source` are now the offsets of `new` from `at`
    on."""

    source: StreamId
    old: SegmentId
    start: int
    stop: int
    new: SegmentId
    at: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """The result of a replacement in the stream `stream`: `removed` events are gone, and `added` events are in their
    place.

    `rewritten` counts events that were kept but stored again, because they were scattered between removed ones; if 0,
    only the catalog changed. `moves` says where the events are now; None if they were too scattered to record.
    """

    stream: StreamId
    removed: int
    added: int
    rewritten: int
    moves: tuple[Relocated, ...] | None

    @property
    def method(self) -> str:
        """`metadata` if no event was stored again, else `rewritten`."""
        return "rewritten" if self.rewritten else "metadata"

    def pointers(self, old: EventPointer) -> tuple[EventPointer, ...]:
        """Where an event of the stream, or of the replacement, is now; empty if it was removed. Raises InvalidPointer
        if the moves were not recorded."""
        if self.moves is None:
            raise InvalidPointer("the replaced events were too scattered to record where each is now")
        return tuple(
            EventPointer(self.stream, each.new, each.at + old.offset - each.start)
            for each in self.moves
            if (each.source, each.old) == (old.stream, old.segment) and each.start <= old.offset < each.stop
        )

    def to_json(self) -> dict[str, Any]:
        """The form stored in the catalog and given to programs."""
        moves = None
        if self.moves is not None:
            moves = [[f"{m.source:016x}", m.old.packed, m.start, m.stop, m.new.packed, m.at] for m in self.moves]
        return {
            "stream": f"{self.stream:016x}",
            "way": self.method,
            "removed": self.removed,
            "added": self.added,
            "rewritten": self.rewritten,
            "moves": moves,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Replaced:
        """The inverse of `to_json`."""
        moves = None
        if value["moves"] is not None:
            moves = tuple(
                Relocated(StreamId(int(source, 16)), SegmentId.unpack(old), start, stop, SegmentId.unpack(new), at)
                for source, old, start, stop, new, at in value["moves"]
            )
        return cls(StreamId(int(value["stream"], 16)), value["removed"], value["added"], value["rewritten"], moves)
