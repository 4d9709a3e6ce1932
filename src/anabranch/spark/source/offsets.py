"""The source offsets that Spark keeps in a query's checkpoint, and the name of the series of a query's batches.

Spark compares offsets as text without interpreting them, so equal offsets always have the same text. An offset names
its stream because Spark's offset log does not say which source a line belongs to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.errors import InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.names import StreamName

__all__ = ["Marker", "SourceOffset", "series_of"]


def series_of(query: str) -> str:
    """The series in which the batches of a query are published; `query` is Spark's id of the query."""
    return f"spark:{query}"


@dataclass(frozen=True, slots=True)
class Marker:
    """The last marker of a source (see `anabranch.spark.source.markers`): its number, from 1, and its event time in
    µs."""

    number: int
    time_us: int

    def __str__(self) -> str:
        return f"{self.number}@{self.time_us}"

    @classmethod
    def parse(cls, text: str) -> Marker:
        """The inverse of `str`. Raises ValueError."""
        number, _, time_us = text.partition("@")
        return cls(int(number), int(time_us))


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """A cut of a stream, and `origin`, the cut where the query's first batch began, which is the same in all offsets of
    the query. `stream` is the name that the stream had then; it may have been renamed since.
    `marker` is the last marker up to here, None if there was none. `keep_rate` is that of the batch that ends at the cut
    (see `anabranch.core.shed_rule`)."""

    stream: StreamName = field(compare=False)
    origin: StreamCut
    cut: StreamCut
    marker: Marker | None = None
    keep_rate: float = 1.0

    def to_json(self) -> dict[str, str]:
        """The value that the checkpoint keeps."""
        fields = {"stream": str(self.stream), "origin": str(self.origin), "cut": str(self.cut)}
        if self.marker is not None:
            fields["marker"] = str(self.marker)
        if self.keep_rate != 1:
            fields["keepRate"] = repr(self.keep_rate)
        return fields

    @classmethod
    def from_json(cls, value: Mapping[str, str]) -> SourceOffset:
        """The inverse of `to_json`. Raises InvalidArgument."""
        try:
            stream = StreamName.parse(value["stream"])
            marker = Marker.parse(value["marker"]) if "marker" in value else None
            origin, cut = StreamCut.parse(value["origin"]), StreamCut.parse(value["cut"])
            return cls(stream, origin, cut, marker, float(value.get("keepRate", "1")))
        except (KeyError, ValueError, TypeError, AttributeError) as exc:
            raise InvalidArgument(f"the checkpoint has no position in a stream: {value}") from exc

    def at(self, cut: StreamCut, keep_rate: float = 1.0) -> SourceOffset:
        """The offset of the same query at another cut, at the end of a batch with this keep rate."""
        return replace(self, cut=cut, keep_rate=keep_rate)

    def marked(self, marker: Marker) -> SourceOffset:
        """The same cut, after a marker."""
        return replace(self, marker=marker)

    def start_of_batch(self, start: SourceOffset) -> StreamCut:
        """Where the batch that ends here begins, given the `start` that Spark passes.

        After a restart Spark asks again where the first batch begins, and the answer may differ by then (for example,
        the tail). In that case the origin stored with the batch's end is used, so that a replay is the same batch.
        """
        return start.cut if start.origin == self.origin else self.origin
