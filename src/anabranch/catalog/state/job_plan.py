"""What a job has planned and done. Deleted when the job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from anabranch.catalog.state.kind import (
    TEXT_KEY,
    KeyText,
    StateKind,
    parts_key,
    state_kind,
)
from anabranch.core.filtered_slice import KeptEvents
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.segment_range import SegmentRange
from anabranch.model.stream import Segment


class PlanKey(NamedTuple):
    """The `number`th source of a job, or stream of an archive, from 0."""

    job: str
    number: int


PLAN_KEY: Final[KeyText[PlanKey]] = parts_key(PlanKey, "{}/{:08}", str, int)


def rows_of(job: str) -> str:
    """The prefix of the keys of a job's plans, files and portions."""
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
    about="The sources of a job as of its creation. Deleted when the job has ended.",
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
    about="The plan of each stream of an archiving job. Deleted when the job has ended.",
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


class JobFileKey(NamedTuple):
    """The file of the `part`th range of a job's `number`th stream, both from 0."""

    job: str
    number: int
    part: int


@dataclass(frozen=True, slots=True)
class JobFile:
    """The file's entry for the archive's metadata (`transfer.archives.format`), and the digests of its blocks, 32 bytes
    each."""

    file: Mapping[str, Any]
    blocks: bytes


JOB_FILE: Final[StateKind[JobFileKey, JobFile]] = state_kind(
    "job_file",
    about="The complete data files of an archiving job. Deleted when the job has ended.",
    by="the job's id, the number of the stream and the number of its range, 6 digits each, with `/` between",
    key=parts_key(JobFileKey, "{}/{:06}/{:06}", str, int, int),
    value=JobFile,
    example=(
        JobFileKey("0a1b2c3d4e5f", 0, 3),
        JobFile({"file": "raw-2bcd55e1e5c62ee7/0000000000000000-0000000000000000.parquet"}, b"0123456789abcdef" * 2),
    ),
)


@dataclass(frozen=True, slots=True)
class Replacing:
    """The job replaces events of the stream `of`. The internal stream `stage` holds the rewritten portions. The times
    of `scanned` of the stream's `total` events have been scanned."""

    of: StreamId
    stage: StreamId
    scanned: int
    total: int


REPLACING: Final[StateKind[str, Replacing]] = state_kind(
    "replacing",
    about="The progress of a job that replaces a time range. Deleted when the job has ended.",
    by="the job's id",
    key=TEXT_KEY,
    value=Replacing,
    example=("0a1b2c3d4e5f", Replacing(StreamId(0x2BCD55E1E5C62EE7), StreamId(0x1122334455667788), 500, 512)),
)


class PortionKey(NamedTuple):
    """A portion of a job: events of a segment, from the offset `start` on."""

    job: str
    segment: SegmentId
    start: int


@dataclass(frozen=True, slots=True)
class StagedPortion:
    """A rewritten portion: its number of events, the xxh3-64 of its runs (pairs of int64, little-endian), and
    the log that holds its events."""

    events: int
    digest: int
    log: LogId


PORTION_KEY: Final[KeyText[PortionKey]] = parts_key(
    PortionKey,
    "{}/{.packed:016x}/{:016x}",
    str,
    lambda segment: SegmentId.unpack(int(segment, 16)),
    lambda start: int(start, 16),
)

REPLACING_PORTION: Final[StateKind[PortionKey, StagedPortion]] = state_kind(
    "replacing_portion",
    about="The rewritten portions of a job that replaces a time range. Deleted when the job has ended.",
    by="the job's id, the segment and the first offset, 16 hex digits each, with `/` between",
    key=PORTION_KEY,
    value=StagedPortion,
    example=(PortionKey("0a1b2c3d4e5f", SegmentId(0, 0), 40), StagedPortion(14, -1234567890123456789, LogId(9))),
)


@dataclass(frozen=True, slots=True)
class CopyPortion:
    """The offsets before `stop`, about `bytes` logical bytes, and which of their events the copy keeps; None as long as
    the filter has not been evaluated for them."""

    stop: int
    bytes: int
    kept: tuple[KeptEvents, ...] | None


COPY_PORTION: Final[StateKind[PortionKey, CopyPortion]] = state_kind(
    "copy_portion",
    about="The portions of a job that copies by a filter. Deleted when the job has ended.",
    by="the job's id, the segment and the first offset, 16 hex digits each, with `/` between",
    key=PORTION_KEY,
    value=CopyPortion,
    example=(
        PortionKey("0a1b2c3d4e5f", SegmentId(0, 0), 0),
        CopyPortion(
            512,
            16_384,
            (
                KeptEvents(0, 100, 100, None, ((0, 100),)),
                KeptEvents(200, 206, 4, LogId(9), ((200, 201), (203, 206))),
            ),
        ),
    ),
)
