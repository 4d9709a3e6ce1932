"""The context of a job's run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback
from anabranch.transfer.jobs.control import RunControl
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.memory import MemoryGauge
from anabranch.transfer.jobs.remote_tasks import Carrier
from anabranch.transfer.jobs.window import WorkWindow


@dataclass(frozen=True, slots=True)
class JobContext:
    """The context of a run: the stores, the run's control, the window of work in flight, the memory gauge, the lease,
    the carrier that moves the bytes elsewhere if there is one, and the progress callback. `changed` is called when a
    stream was created."""

    source: JobStore
    target: JobStore
    control: RunControl
    window: WorkWindow
    memory: MemoryGauge
    hold: HeldLease
    carrier: Carrier | None
    progress: ProgressCallback
    changed: Callable[[], None]
