"""A query that a host holds."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch import limits
from anabranch.catalog.state.query import QueryRow
from anabranch.spark.queries.driver_process import DriverOwner, DriverProcess

__all__ = ["HeldQuery"]


@dataclass
class HeldQuery:
    """`change`: the change of the query that its driver runs, None until the run has started. `begun`: the change with
    which the driver was told to run it. `lost`: another host has the query. `unwanted_s`: since when the run should
    end, if it has not started yet or is to end without finishing its micro-batch. Times by the monotonic clock."""

    row: QueryRow
    owner: DriverOwner
    renewed_s: float
    driver: DriverProcess | None = None
    change: int | None = None
    stopping: bool = False
    ending: bool = False  # without finishing its micro-batch
    lost: bool = False
    started_s: float = 0.0
    begun: int | None = None
    unwanted_s: float | None = None

    @property
    def runs(self) -> bool:
        """True if the query is to run on this host."""
        return self.row.wanted == "running" and self.row.state != "failed"

    def has_run_for(self, seconds: float, now_s: float) -> bool:
        """True if its run started at least `seconds` ago."""
        return self.change is not None and now_s - self.started_s >= seconds

    def is_stuck(self, now_s: float) -> bool:
        """True if a run should have ended by now, but does not: Spark may plan a statement for hours, and can't be stopped
        meanwhile. A run that finishes its micro-batch has any time. To be called in each round of the host."""
        unwanted = not self.runs or self.begun != self.row.change
        if not unwanted or not (self.change is None or self.ending):
            self.unwanted_s = None
            return False
        self.unwanted_s = now_s if self.unwanted_s is None else self.unwanted_s
        return now_s - self.unwanted_s > limits.DEPLOYMENT_STOP_S
