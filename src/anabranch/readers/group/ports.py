"""What a group reader needs of others: where its application stores positions, and what writes its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from anabranch.model.append import Part
from anabranch.model.position import StreamSegment


class StoredPositions(Protocol):
    """Where an application stores how far it is, together with its output; see `SqlPositions`."""

    def load(self, group: str, segment: StreamSegment) -> int | None:
        """The offset that is stored for a segment, or None."""
        ...


class Outputs(Protocol):
    """Writes events and a part of somebody's state as one atomic unit. The store has one."""

    def stage(self, outputs: Mapping[str, Any]) -> Sequence[Any]:
        """Batches by stream, made ready. Raises SchemaMismatch, StreamNotFound, TooLarge."""
        ...

    def publish(self, staged: Sequence[Any], part: Part, *, series: str, number: int) -> bool:
        """Append both, or neither; False, and nothing done, if that number of the series, or a higher one, was published
        before. Raises ConditionFailed where the part's condition does not hold, AppendUncertain."""
        ...

    def end(self, series: str) -> None:
        """Nothing more will be published in a series."""
        ...
