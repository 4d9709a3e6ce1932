"""A range of a stream between two cuts, described before the stream is read."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import InvalidCut
from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut, parse_cut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The events of `stream` from the cut `start` up to the cut `end`; by default all of them.

    A cut may be given in its text form. An edge is resolved in the transaction that uses it. A stream given by its id
    stays the same stream if it is renamed.
    """

    stream: StreamName | StreamId | str
    start: StreamCut | Edge | str = HEAD
    end: StreamCut | Edge | str = TAIL

    @classmethod
    def of(cls, source: StreamName | StreamId | str | StreamRange) -> StreamRange:
        """A whole stream, or the given range, with name and cuts parsed. Raises InvalidName, InvalidCut."""
        if not isinstance(source, StreamRange):
            source = cls(source)
        stream = source.stream if isinstance(source.stream, int) else StreamName.parse(source.stream)
        return cls(stream, parse_cut(source.start), parse_cut(source.end))

    @classmethod
    def parse(cls, text: str) -> StreamRange:
        """The inverse of `str` for a stream that is given by its name: `scope/name`, or `scope/name[start,end]`, where either
        place may be omitted. Name and places are not parsed here: `of` does that. Raises InvalidCut for malformed brackets."""
        name, bracket, places = text.partition("[")
        if not bracket:
            return cls(name)
        start, comma, end = places.removesuffix("]").partition(",")
        if not (comma and places.endswith("]")):
            raise InvalidCut(f"'{text}' is not a range of a stream: expected scope/name[start,end]")
        return cls(name, start.strip() or HEAD, end.strip() or TAIL)

    @property
    def places(self) -> dict[str, str]:
        """The `start` and the `end` as text: `head`, `tail`, or the cut."""
        ends = {"start": self.start, "end": self.end}
        return {name: cut.value if isinstance(cut, Edge) else str(cut) for name, cut in ends.items()}

    def __str__(self) -> str:
        start, end = self.places.values()
        stream = f"{self.stream:016x}" if isinstance(self.stream, int) else str(self.stream)
        return stream if (start, end) == ("head", "tail") else f"{stream}[{start},{end}]"
