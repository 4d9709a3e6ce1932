"""A part of a stream between two cuts, named before the stream is looked at."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.model.cut import HEAD, TAIL, Edge, StreamCut
from anabranch.model.names import StreamName


@dataclass(frozen=True, slots=True)
class StreamRange:
    """The events of `stream` from the cut `start` up to the cut `end`; by default all of them.

    A cut may be given by its text form. An edge is resolved in the transaction that uses it.
    """

    stream: StreamName | str
    start: StreamCut | Edge | str = HEAD
    end: StreamCut | Edge | str = TAIL

    @classmethod
    def of(cls, source: StreamName | str | StreamRange) -> StreamRange:
        """A whole stream, or the range itself, with its name and cuts parsed. Raises InvalidName, InvalidCut."""
        if not isinstance(source, StreamRange):
            source = cls(source)
        return cls(StreamName.parse(source.stream), _cut(source.start), _cut(source.end))

    def __str__(self) -> str:
        start, end = (cut.value if isinstance(cut, Edge) else str(cut) for cut in (self.start, self.end))
        return str(self.stream) if (start, end) == ("head", "tail") else f"{self.stream}[{start},{end}]"


def _cut(cut: StreamCut | Edge | str) -> StreamCut | Edge:
    if isinstance(cut, str):
        return Edge(cut) if cut in ("head", "tail") else StreamCut.parse(cut)
    return cut
