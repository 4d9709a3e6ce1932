"""How a call runs its job."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.log.progress import ProgressCallback
from anabranch.model.amounts import check_integer
from anabranch.transfer.jobs.remote_tasks import Carrier


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The request id of a job, the number of bundles in flight, the carrier that moves them elsewhere if there is one,
    and the progress callback. Raises InvalidArgument for a window that is no integer."""

    request: str | None
    window: int
    carrier: Carrier | None
    progress: ProgressCallback

    def __post_init__(self) -> None:
        check_integer("window", self.window)
