"""Running the bundles of a job in other processes, which know nothing of the job except what is sent to them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.catalog.port import Lease
from anabranch.log.lease import HeldLease
from anabranch.model.ids import StreamId
from anabranch.transfer.jobs.control import Moved, RunControl, StopRequested, TaskContext
from anabranch.transfer.jobs.deduplicate_remote import KeptRanges
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.memory import MemoryGauge
from anabranch.transfer.jobs.move import RangeMover
from anabranch.transfer.jobs.range_reader import RangeReader
from anabranch.transfer.jobs.record import JobRange


@dataclass(frozen=True)
class Bundle(ABC):
    """A part of the work of a job's run `owner`, with everything it needs: a small value that can be sent to other
    processes."""

    job: str
    owner: str
    lease: Lease

    @property
    def store(self) -> int:
        """The number of the store that it reads, among those of the job."""
        return 0

    @abstractmethod
    def move(self, source: JobStore, target: JobStore, task: TaskContext) -> None:
        """Move the missing part of the bundle. Raises StopRequested, JobRunning, and what moving raises."""


@dataclass(frozen=True)
class MoveBundle(Bundle):
    """Ranges of one source of a job, in its store number `store`; with deduplication, also which of their events are
    kept."""

    stream: StreamId
    stage: StreamId
    schema_version: int
    ranges: tuple[JobRange, ...]
    sifted: KeptRanges | None = None
    store: int = 0

    def move(self, source: JobStore, target: JobStore, task: TaskContext) -> None:
        """Raises as `RangeMover.move`."""
        range_reader = RangeReader.into(target, self.stage, self.schema_version, source, self.stream)
        RangeMover(range_reader, target, self.stage, task, keep_masks=self.sifted).move(self.ranges)


class Carrier(Protocol):
    """Moves bundles in other processes, and returns when all are moved or some have been stopped. It may move a bundle
    several times or in several places at once: its events are appended once."""

    def __call__(self, bundles: Sequence[Bundle]) -> None:
        """Raises what moving raises."""
        ...


def carry(bundle: Bundle, source: JobStore, target: JobStore, *, moved: Moved = lambda _events, _size: None) -> bool:
    """Move a bundle; False if the job was stopped meanwhile. Raises as `Bundle.move`."""
    control = RunControl(target, bundle.job, bundle.owner)
    hold = HeldLease.resumed(target.catalog, target.runtime, bundle.lease)
    try:
        bundle.move(source, target, TaskContext(control, hold, MemoryGauge(target.runtime.tasks), moved))
    except StopRequested:
        return False
    return True
