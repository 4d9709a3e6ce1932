"""Stream cuts: one offset per segment, such that the key space is covered exactly once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from anabranch.errors import InvalidCut
from anabranch.model.ids import SegmentId, StreamId

_ID = r"[0-7][0-9a-f]{15}"  # below 2**63, like every number stored in a catalog
_TEXT = re.compile(rf"({_ID})((?::{_ID}@(?:[0-9a-f]{{1,15}}|{_ID}))+)\Z")


class Edge(Enum):
    """The two cuts that every stream has. An edge is resolved to a cut when it is used."""

    HEAD = "head"
    TAIL = "tail"

    def __repr__(self) -> str:
        return self.name


HEAD = Edge.HEAD
TAIL = Edge.TAIL


class Order(Enum):
    """How one place of a stream relates to another. Two places are `CONCURRENT` if each has events before it that the
    other does not: neither can be reached by reading on from the other."""

    SAME = "same"
    BEFORE = "before"
    AFTER = "after"
    CONCURRENT = "concurrent"


def parse_cut(cut: object) -> StreamCut | Edge:
    """Convert what a caller passes as a place in a stream: a cut or its text, `HEAD` or `TAIL`. Raises InvalidCut."""
    if isinstance(cut, StreamCut | Edge):
        return cut
    if isinstance(cut, str):
        return Edge(cut) if cut in ("head", "tail") else StreamCut.parse(cut)
    raise InvalidCut(f"expected a stream cut or its text, HEAD or TAIL; got {type(cut).__name__}")


@dataclass(frozen=True, slots=True)
class StreamCut:
    """Positions in one stream: `offsets` holds (segment, offset) in segment order, each segment once.

    Each offset is that of the first event after the cut. Text form: `<stream, 16 hex>:<segment, 16 hex>@<offset,
    hex>:…`.
    """

    stream: StreamId
    offsets: tuple[tuple[SegmentId, int], ...]

    @classmethod
    def of(cls, stream: StreamId, offsets: Mapping[SegmentId, int]) -> StreamCut:
        """A cut from a mapping; order does not matter."""
        return cls(stream, tuple(sorted(offsets.items())))

    @classmethod
    def parse(cls, text: str) -> StreamCut:
        """Parse the text form. Raises InvalidCut."""
        match = _TEXT.match(text) if isinstance(text, str) else None
        if not match:
            raise InvalidCut(
                f"'{text}' is not a stream cut; pass one as it was printed, or make one with: anabranch cut"
            )
        parts = [part.split("@") for part in match[2].split(":")[1:]]
        offsets = {SegmentId.unpack(int(segment, 16)): int(offset, 16) for segment, offset in parts}
        if len(offsets) != len(parts):
            raise InvalidCut(f"'{text}' names a segment twice")
        return cls.of(StreamId(int(match[1], 16)), offsets)

    def as_dict(self) -> dict[SegmentId, int]:
        """The offsets by segment."""
        return dict(self.offsets)

    def __iter__(self) -> Iterator[tuple[SegmentId, int]]:
        return iter(self.offsets)

    def __str__(self) -> str:
        return f"{self.stream:016x}" + "".join(f":{s.packed:016x}@{o:x}" for s, o in self.offsets)
