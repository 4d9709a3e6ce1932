"""A stream's place as Spark keeps it in a query's checkpoint, and the series of the batches that it numbers.

Spark compares offsets as text and knows nothing of what they mean, so the same place always has the same text. They
name their stream because Spark's log does not say which source a line belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.errors import InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName

__all__ = ["SourceOffset", "series_of"]


def series_of(query: str) -> str:
    """The series in which the batches of a query are published; `query` is Spark's id of it."""
    return f"spark:{query}"


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """A cut, and `origin`, the cut where the query's first batch began: the same in all offsets of a query."""

    stream: StreamName
    origin: StreamCut
    cut: StreamCut

    def to_json(self) -> dict[str, str]:
        """The value that is kept."""
        return {"stream": str(self.stream), "origin": str(self.origin), "cut": str(self.cut)}

    @classmethod
    def from_json(cls, value: Mapping[str, str]) -> SourceOffset:
        """The inverse of `to_json`. Raises InvalidArgument."""
        try:
            stream = StreamName.parse(value["stream"])
            return cls(stream, StreamCut.parse(value["origin"]), StreamCut.parse(value["cut"]))
        except (KeyError, TypeError, AttributeError) as exc:
            raise InvalidArgument(f"the checkpoint holds no place of a stream: {value}") from exc

    def at(self, cut: StreamCut) -> SourceOffset:
        """Another place of the same query."""
        return SourceOffset(self.stream, self.origin, cut)

    def start_of_batch(self, start: SourceOffset) -> StreamCut:
        """Where the batch that ends here begins, if Spark says it begins at `start`.

        After a restart Spark asks anew where the first batch begins, and the answer may be another by then (the tail,
        say). Then the origin that was written down with the batch's end holds, so that its replay is the same batch.
        """
        return start.cut if start.origin == self.origin else self.origin
