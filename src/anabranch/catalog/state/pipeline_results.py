"""Results that deleted pipelines left in streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import STREAM_KEY, StateKind, state_kind
from anabranch.model.ids import Micros, StreamId


@dataclass(frozen=True, slots=True)
class ResultsRow:
    """The stream still holds the results of `pipeline`, which was deleted at `deleted_at`."""

    pipeline: str
    deleted_at: Micros


PIPELINE_RESULTS: Final[StateKind[StreamId, ResultsRow]] = state_kind(
    "pipeline_results",
    by="the stream's id, 16 hex digits",
    key=STREAM_KEY,
    value=ResultsRow,
    example=(StreamId(0x2BCD55E1E5C62EE7), ResultsRow("means", Micros(1_767_225_600_000_000))),
)
