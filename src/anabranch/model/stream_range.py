"""A part of a stream between two cuts, named before the stream is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import InvalidCut
from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut, place_of
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The events of `stream` from the cut `start` up to the cut `end`; by default all of them.

    A cut may be given by its text form. An edge is resolved in the transaction that uses it. A stream that is given by
    its id is the same one whatever it is called by then.
    """

    stream: StreamName | StreamId | str
    start: StreamCut | Edge | str = HEAD
    end: StreamCut | Edge | str = TAIL

    @classmethod
    def of(cls, source: StreamName | StreamId | str | StreamRange) -> StreamRange:
        """A whole stream, or the range itself, with its name and cuts parsed. Raises InvalidName, InvalidCut."""
        if not isinstance(source, StreamRange):
            source = cls(source)
        stream = source.stream if isinstance(source.stream, int) else StreamName.parse(source.stream)
        return cls(stream, place_of(source.start), place_of(source.end))

    @classmethod
    def parse(cls, text: str) -> StreamRange:
        """The inverse of `str`: `scope/name`, or `scope/name[start,end]`, where either place may be left out. Places are
        not looked at here: `of` does that. Raises InvalidCut for brackets that are not whole."""
        name, bracket, places = text.partition("[")
        if not bracket:
            return cls(name)
        start, comma, end = places.removesuffix("]").partition(",")
        if not (comma and places.endswith("]")):
            raise InvalidCut(f"'{text}' is no range of a stream: write scope/name[start,end]")
        return cls(name, start.strip() or HEAD, end.strip() or TAIL)

    def __str__(self) -> str:
        start, end = (cut.value if isinstance(cut, Edge) else str(cut) for cut in (self.start, self.end))
        stream = f"{self.stream:016x}" if isinstance(self.stream, int) else str(self.stream)
        return stream if (start, end) == ("head", "tail") else f"{stream}[{start},{end}]"
