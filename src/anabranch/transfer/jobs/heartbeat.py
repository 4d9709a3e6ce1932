"""Sending heartbeats for a run whose steps take long, because of a slow object store or queued tasks."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.errors import JobRunning
from anabranch.log.lease import HeldLease
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.transfer.jobs.control import RunControl, StopRequested

HEARTBEAT_S: Final = limits.JOB_HEARTBEAT_TIMEOUT_US / 3_000_000


def job_heartbeat(control: RunControl, hold: HeldLease, runtime: Runtime) -> Periodic:
    """Records a heartbeat for the job and renews its lease every third of `limits.JOB_HEARTBEAT_TIMEOUT_US`, while its
    context is open. Ends once the run must stop: its next step notices that too, and raises it."""

    def beat() -> None:
        control.check()
        hold.renew()

    return Periodic(runtime, f"heartbeat of job {control.job}", HEARTBEAT_S, beat, ends_on=(StopRequested, JobRunning))
