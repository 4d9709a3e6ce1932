"""The result of a copy, and the mapping of its source's pointers and cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.errors import InvalidCut, InvalidPointer
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer


class CopiedRange(NamedTuple):
    """The offsets `start <= offset < stop` of a segment of the source are those from `at` on of the same segment of the
    copy."""

    segment: SegmentId
    start: int
    stop: int
    at: int


@dataclass(frozen=True, slots=True)
class Filtered:
    """What a copy by a filter holds: the `events` for which the condition `where` is true.

    `rewritten` of them were stored again, because they were scattered; if 0, only the catalog changed. `ranges` says
    where the source's events are in the copy; None if they were too scattered to record.
    """

    where: str
    events: int
    rewritten: int
    ranges: tuple[CopiedRange, ...] | None

    def to_json(self) -> dict[str, object]:
        """The form stored in the catalog."""
        ranges = None
        if self.ranges is not None:
            ranges = [[each.segment.packed, each.start, each.stop, each.at] for each in self.ranges]
        return {"where": self.where, "events": self.events, "rewritten": self.rewritten, "ranges": ranges}

    @classmethod
    def from_json(cls, value: Any) -> Filtered:
        """The inverse of `to_json`."""
        ranges = None
        if value["ranges"] is not None:
            ranges = tuple(CopiedRange(SegmentId.unpack(segment), *rest) for segment, *rest in value["ranges"])
        return cls(value["where"], value["events"], value["rewritten"], ranges)


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A copy: the stream `copy` holds what `source` held between the source's cuts `start` and `end`; if it was
    `filtered`, the part of it that matched."""

    copy: StreamId
    source: StreamId
    start: StreamCut
    end: StreamCut
    filtered: Filtered | None = None

    def pointer(self, old: EventPointer) -> EventPointer:
        """Where an event of the source is in the copy: in the same segment, and unless events were left out before it,
        at the same offset. Raises InvalidPointer for a pointer of another stream, for an event that was left out, and
        if it was not recorded."""
        if old.stream != self.source:
            raise InvalidPointer(f"the pointer belongs to stream {old.stream:016x}, not to {self.source:016x}")
        if self.filtered is None:
            return old._replace(stream=self.copy)
        for each in self._ranges(InvalidPointer):
            if each.segment == old.segment and each.start <= old.offset < each.stop:
                return EventPointer(self.copy, old.segment, each.at + old.offset - each.start)
        raise InvalidPointer(f"the filter of the copy left out the event at {old}")

    def cut(self, old: StreamCut) -> StreamCut:
        """The same place in the copy: before the same events, without those that were left out. Raises InvalidCut for
        a cut of another stream, and if it was not recorded where the events are."""
        if old.stream != self.source:
            raise InvalidCut(f"the cut belongs to stream {old.stream:016x}, not to {self.source:016x}")
        if self.filtered is None:
            return StreamCut(self.copy, old.offsets)
        ranges, heads = self._ranges(InvalidCut), self.start.as_dict()

        def moved(segment: SegmentId, offset: int) -> int:
            found = [each for each in ranges if each.segment == segment]
            head = found[0].at if found else heads.get(segment, 0)
            return head + sum(min(offset, each.stop) - each.start for each in found if each.start < offset)

        return StreamCut(self.copy, tuple((segment, moved(segment, offset)) for segment, offset in old.offsets))

    def _ranges(self, error: type[InvalidCut | InvalidPointer]) -> tuple[CopiedRange, ...]:
        assert self.filtered is not None
        if self.filtered.ranges is None:
            raise error("the copied events were too scattered to record where each is now")
        return self.filtered.ranges

    def to_json(self) -> dict[str, object]:
        """The form stored in the catalog."""
        whole: dict[str, object] = {
            "copy": f"{self.copy:016x}",
            "source": f"{self.source:016x}",
            "from": str(self.start),
            "to": str(self.end),
        }
        return whole if self.filtered is None else {**whole, "filtered": self.filtered.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, object]) -> CopyResult:
        """The inverse of `to_json`."""
        copy, source = (StreamId(int(str(value[name]), 16)) for name in ("copy", "source"))
        filtered = Filtered.from_json(value["filtered"]) if "filtered" in value else None
        return cls(copy, source, StreamCut.parse(str(value["from"])), StreamCut.parse(str(value["to"])), filtered)
