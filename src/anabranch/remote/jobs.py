"""A job of a broker's store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.model.seconds import wait_limit
from anabranch.remote.verbs import Caller, same_method
from anabranch.transfer.jobs.job import Job
from anabranch.wire.verbs import VERBS


class RemoteJob(Displayed):
    """`anabranch.transfer.jobs.job.Job`, which runs in a broker or elsewhere, never here. `pause` and `cancel` return once
    the run was asked to stop, or has stopped."""

    alive = False
    window: int | None = None
    memory_peak: int | None = None

    def __init__(self, caller: Caller, job: str) -> None:
        self.id = job
        self._caller = caller

    def _facts(self) -> Mapping[str, object]:
        return {"id": self.id, "state": "elsewhere"}

    def _call(self, method: str, **arguments: Any) -> Any:
        return self._caller.call(VERBS[f"job.{method}"], {"job": self.id, **arguments})

    row = same_method(Job, "row")
    progress = same_method(Job, "progress")
    pause = same_method(Job, "pause")
    cancel = same_method(Job, "cancel")

    def wait(self, timeout_s: float | None = None) -> Any:
        """See `Job.wait`."""
        clock = self._caller.runtime.clock
        limit_s = wait_limit("timeout_s", timeout_s)
        until = None if limit_s is None else clock.monotonic() + limit_s
        while True:
            left = limits.REMOTE_WAIT_S if until is None else max(0.0, until - clock.monotonic())
            try:
                return self._call("wait", timeout_s=left)
            except TimeoutError:
                if until is not None and clock.monotonic() >= until:
                    raise

    def stop(self) -> None:
        """See `Job.stop`: it never runs here."""
