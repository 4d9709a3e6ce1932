"""The ports of a group reader: where its application stores positions, and what writes its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anabranch.model.append import Part
from anabranch.model.position import StreamSegment


class StoredPositions(Protocol):
    """Where an application stores its positions, together with its output; see `SqlPositions`."""

    def load(self, group: str, segment: StreamSegment) -> int | None:
        """The offset stored for a segment, or None."""


class Outputs(Protocol):
    """Writes events and a part of the caller's state as one atomic unit. The store implements it."""

    def stage(self, outputs: Mapping[str, Any]) -> Sequence[Any]:
        """Prepare batches by stream for publishing. Raises SchemaMismatch, StreamNotFound, TooLarge."""

    def publish(self, staged: Sequence[Any], part: Part, *, series: str, number: int) -> bool:
        """Append both, or neither. Returns False and does nothing if that number of the series, or a higher one, was
        published before. Raises ConditionFailed where the part's condition does not hold, AppendUncertain."""

    def last(self, series: str) -> int:
        """The number that was published last in a series; 0 where there is none."""

    def end(self, series: str) -> None:
        """End a series: nothing more will be published in it."""
