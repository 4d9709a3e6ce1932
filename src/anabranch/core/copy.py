"""The result of a copy, and the mapping of its source's pointers and cuts."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import InvalidCut, InvalidPointer
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.pointer import EventPointer


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A copy: the stream `copy` holds what `source` held between the source's cuts `start` and `end`."""

    copy: StreamId
    source: StreamId
    start: StreamCut
    end: StreamCut

    def pointer(self, old: EventPointer) -> EventPointer:
        """Where an event of the source is in the copy: in the same segment, at the same offset. Raises InvalidPointer
        for a pointer of another stream."""
        if old.stream != self.source:
            raise InvalidPointer(f"the pointer belongs to stream {old.stream:016x}, not to {self.source:016x}")
        return old._replace(stream=self.copy)

    def cut(self, old: StreamCut) -> StreamCut:
        """The same place in the copy. Raises InvalidCut for a cut of another stream."""
        if old.stream != self.source:
            raise InvalidCut(f"the cut belongs to stream {old.stream:016x}, not to {self.source:016x}")
        return StreamCut(self.copy, old.offsets)

    def to_json(self) -> dict[str, object]:
        """The form stored in the catalog."""
        return {
            "copy": f"{self.copy:016x}",
            "source": f"{self.source:016x}",
            "from": str(self.start),
            "to": str(self.end),
        }

    @classmethod
    def from_json(cls, value: dict[str, object]) -> CopyResult:
        """The inverse of `to_json`."""
        copy, source = (StreamId(int(str(value[name]), 16)) for name in ("copy", "source"))
        return cls(copy, source, StreamCut.parse(str(value["from"])), StreamCut.parse(str(value["to"])))
