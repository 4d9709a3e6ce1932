"""The methods of one job (`anabranch.transfer.jobs.job.Job`) as verbs: `job.wait` is `store.jobs.get(job).wait`."""

from __future__ import annotations

from typing import Any, Final

from anabranch import limits
from anabranch.catalog.state.job import JobRow
from anabranch.store.facade import Store
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.progress import JobProgress
from anabranch.wire.values import Handle
from anabranch.wire.verbs.needs import job
from anabranch.wire.verbs.verb import StoreVerb

JOB: Final = "job"


def job_handle(job: Job) -> Handle:
    """A job, by its id."""
    return Handle(JOB, job.id)


def row(store: Store, job: str) -> JobRow:
    """See `Job.row`."""
    return store.jobs.get(job).row()


def progress_of(store: Store, job: str) -> JobProgress:
    """See `Job.progress`."""
    return store.jobs.get(job).progress()


def wait(store: Store, job: str, timeout_s: float | None = None) -> Any:
    """See `Job.wait`. Waits at most `limits.REMOTE_WAIT_S`: a client asks again."""
    longest = limits.REMOTE_WAIT_S
    return store.jobs.get(job).wait(longest if timeout_s is None else min(timeout_s, longest))


def pause(store: Store, job: str) -> JobRow:
    """See `Job.pause`."""
    return store.jobs.get(job).pause()


def cancel(store: Store, job: str) -> JobRow:
    """See `Job.cancel`."""
    return store.jobs.get(job).cancel()


JOB_VERBS: Final = (
    StoreVerb("job.cancel", job("manage"), run=cancel),
    StoreVerb("job.pause", job("manage"), run=pause),
    StoreVerb("job.progress", job("read"), run=progress_of, changes=False),
    StoreVerb("job.row", job("read"), run=row, changes=False),
    StoreVerb("job.wait", job("read"), run=wait, changes=False),
)
