"""Objects that stay in the broker, as handles that can be sent."""

from __future__ import annotations

from anabranch.transfer.jobs.job import Job
from anabranch.wire.values import Handle

JOB = "job"


def job_handle(job: Job) -> Handle:
    """A job, by its id."""
    return Handle(JOB, job.id)
