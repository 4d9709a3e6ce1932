"""The last number of each series of numbered publications, such as the batches of a streaming query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind


@dataclass(frozen=True, slots=True)
class PublishedSeries:
    """A publication with this `number` or a lower one is a repetition."""

    number: int


PUBLISHED: Final[StateKind[str, PublishedSeries]] = state_kind(
    "published",
    by="the name of the series: `spark:` and the id of a query",
    key=TEXT_KEY,
    value=PublishedSeries,
    example=("spark:6f2c9f0a-2f0a-4c58-9d3e-5a1d3f6b8c21", PublishedSeries(41)),
)
