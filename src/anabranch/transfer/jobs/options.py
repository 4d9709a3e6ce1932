"""How a call runs its job."""

from __future__ import annotations

from typing import NamedTuple

from anabranch.log.progress import ProgressCallback
from anabranch.transfer.jobs.remote_tasks import Carrier


class JobOptions(NamedTuple):
    """The request id of a job, the number of bundles in flight, the carrier that moves them elsewhere if there is one,
    and the progress callback."""

    request: str | None
    window: int
    carrier: Carrier | None
    progress: ProgressCallback
