"""The methods of one job (`anabranch.transfer.jobs.job.Job`) as verbs: `job.wait` is `store.jobs.get(job).wait`."""

from __future__ import annotations

from typing import Any, Final

from anabranch import limits
from anabranch.store.facade import Store
from anabranch.transfer.jobs.job import Job
from anabranch.wire.values import Handle
from anabranch.wire.verbs.needs import job
from anabranch.wire.verbs.verb import Opened, StoreVerb

JOB: Final = "job"


def job_handle(job: Job) -> Handle:
    """A job, by its id."""
    return Handle(JOB, job.id)


def wait(store: Store, job: str, timeout_s: float | None = None) -> Any:
    """See `Job.wait`. Waits at most `limits.REMOTE_WAIT_S`: a client asks again."""
    longest = limits.REMOTE_WAIT_S
    return store.jobs.get(job).wait(longest if timeout_s is None else min(timeout_s, longest))


def _job(store: Store, job: str) -> Job:
    return store.jobs.get(job)


_JOB: Final = Opened(Job, _job)

JOB_VERBS: Final = (
    StoreVerb("job.cancel", job("manage"), of=_JOB),
    StoreVerb("job.pause", job("manage"), of=_JOB),
    StoreVerb("job.progress", job("read"), of=_JOB, changes=False),
    StoreVerb("job.row", job("read"), of=_JOB, changes=False),
    StoreVerb("job.wait", job("read"), run=wait, changes=False),
)
