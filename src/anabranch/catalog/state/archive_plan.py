"""The plan of each stream of an archiving job. Deleted when the job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.catalog.state.job_plan import PLAN_KEY, PlanKey
from anabranch.catalog.state.kind import StateKind, state_kind
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream import Segment


@dataclass(frozen=True, slots=True)
class StoredArchivePlan:
    """A stream without its segments, in the form of an archive's metadata, which has its own contract
    (`transfer.archives.format`); its segments, each with the offset after its last archived event; and the range that
    each data file holds."""

    stream: Mapping[str, Any]
    segments: tuple[tuple[Segment, int], ...]
    ranges: tuple[SegmentRange, ...]


ARCHIVE_PLAN: Final[StateKind[PlanKey, StoredArchivePlan]] = state_kind(
    "archive_plan",
    by="the job's id, `/` and the number of the stream, 8 digits",
    key=PLAN_KEY,
    value=StoredArchivePlan,
    example=(
        PlanKey("0a1b2c3d4e5f", 0),
        StoredArchivePlan(
            {"stream": "iot/raw"},
            ((Segment(SegmentId(0, 0), KeyRange(0, 1 << 64), None, 0), 512),),
            (SegmentRange(SegmentId(0, 0), 0, 512, 16_384),),
        ),
    ),
)
