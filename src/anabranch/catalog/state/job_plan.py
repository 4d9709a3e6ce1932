"""The sources of a job as of its creation. Deleted when the job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import KeyText, StateKind, numbered_key, state_kind
from anabranch.model.ids import LogId, Micros, SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.stream import Segment


@dataclass(frozen=True, slots=True)
class PlanKey:
    """The `number`th source of a job, or stream of an archive, from 0."""

    job: str
    number: int


PLAN_KEY: Final[KeyText[PlanKey]] = numbered_key(PlanKey, lambda key: (key.job, key.number))


def plans_of(job: str) -> str:
    """The prefix of the keys of a job's plans."""
    return f"{job}/"


@dataclass(frozen=True, slots=True)
class JobRange:
    """The events `start <= offset < stop` of a source's segment, about `size` logical bytes, and the target's log that
    they are written to."""

    segment: SegmentId
    start: int
    stop: int
    size: int
    log: LogId

    @property
    def events(self) -> int:
        """The number of events it holds."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A source as of the job's creation: its description, its segments in id order, each with the offset after its last
    event, and the ranges in reading order. No event was appended after `appended_at`."""

    schema_version: int
    epoch: int
    next_number: int
    tags: Mapping[str, str]
    segments: tuple[tuple[Segment, int], ...]
    ranges: tuple[JobRange, ...]
    appended_at: Micros


JOB_PLAN: Final[StateKind[PlanKey, SourcePlan]] = state_kind(
    "job_plan",
    by="the job's or member's id, `/` and the number of the source, 8 digits",
    key=PLAN_KEY,
    value=SourcePlan,
    example=(
        PlanKey("0a1b2c3d4e5f", 0),
        SourcePlan(
            1,
            0,
            1,
            {"team": "ops"},
            ((Segment(SegmentId(0, 0), KeyRange(0, 1 << 64), None, 0), 512),),
            (JobRange(SegmentId(0, 0), 0, 512, 16_384, LogId(7)),),
            Micros(1_767_225_600_000_000),
        ),
    ),
)
