"""Jobs as stored in their target's catalog: one row with the request and state of each, and one plan per source.

The types are declared where the catalog's state is (`catalog.state.job`, `catalog.state.job_plan`); here they are found
and stored.
"""

from __future__ import annotations

from typing import TypeVar

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.job import (
    ARCHIVE,
    COPY_SCOPE,
    COPY_WHERE,
    IMPORT,
    JOB,
    JOB_MEMBER,
    REPLACE,
    JobRow,
    JobSource,
    JobState,
    ended_lookup,
    members_prefix,
    open_lookup,
)
from anabranch.catalog.state.job_plan import JOB_PLAN, JobRange, PlanKey, SourcePlan
from anabranch.errors import JobNotFound
from anabranch.model.ids import Micros

__all__ = [
    "ARCHIVE",
    "COPY_SCOPE",
    "COPY_WHERE",
    "IMPORT",
    "REPLACE",
    "JobRange",
    "JobRow",
    "JobSource",
    "JobState",
    "SourcePlan",
    "all_jobs",
    "drop_job",
    "drop_member",
    "drop_old_jobs",
    "drop_plan",
    "member_id",
    "need_job",
    "need_member",
    "need_plan",
    "open_jobs",
    "put_job",
    "put_member",
    "put_plan",
    "rows_of_members",
]


T = TypeVar("T")


def need_job(txn: Reading, job: str) -> JobRow:
    """The job. Raises JobNotFound."""
    return _need_state(txn.state(JOB, job), job)


def all_jobs(txn: Reading) -> list[JobRow]:
    """All jobs, by id."""
    return [row for _, row in txn.states(JOB)]


def open_jobs(txn: Reading, target: str) -> list[JobRow]:
    """The jobs with this target that have not ended."""
    return [row for _, row in txn.states_found(JOB, open_lookup(target))]


def put_job(txn: Writing, row: JobRow) -> None:
    """Store a job."""
    txn.put_state(JOB, row.id, row)


def drop_job(txn: Writing, job: str) -> None:
    """Delete the row of a job."""
    txn.drop_state(JOB, job)


def drop_old_jobs(txn: Writing, now: Micros) -> None:
    """Delete the rows of jobs that have ended and were created more than `limits.JOBS_KEPT_US` ago."""
    below = ended_lookup(Micros(max(now - limits.JOBS_KEPT_US, 0)))
    for job, _ in txn.states_found(JOB, ended_lookup(Micros(0)), below=below):
        txn.drop_state(JOB, job)


# members


def member_id(job: str, number: int) -> str:
    """The id of a job's `number`th member. Ids sort as the numbers do."""
    return f"{members_prefix(job)}{number:06d}"


def rows_of_members(txn: Reading, job: str) -> list[JobRow]:
    """A job's members, in order."""
    return [row for _, row in txn.states(JOB_MEMBER, prefix=members_prefix(job))]


def need_member(txn: Reading, ident: str) -> JobRow:
    """One member. Raises JobNotFound."""
    return _need_state(txn.state(JOB_MEMBER, ident), ident)


def put_member(txn: Writing, row: JobRow) -> None:
    """Store a member."""
    txn.put_state(JOB_MEMBER, row.id, row)


def drop_member(txn: Writing, ident: str) -> None:
    """Delete the row of a member."""
    txn.drop_state(JOB_MEMBER, ident)


# plans


def need_plan(txn: Reading, job: str, number: int) -> SourcePlan:
    """The plan of a job's `number`th source. Raises JobNotFound."""
    return _need_state(txn.state(JOB_PLAN, PlanKey(job, number)), job)


def put_plan(txn: Writing, job: str, number: int, plan: SourcePlan) -> None:
    """Store the plan of a job's `number`th source."""
    txn.put_state(JOB_PLAN, PlanKey(job, number), plan)


def drop_plan(txn: Writing, job: str, number: int) -> None:
    """Delete the plan of a job's `number`th source."""
    txn.drop_state(JOB_PLAN, PlanKey(job, number))


def _need_state(state: T | None, job: str) -> T:
    if state is None:
        raise JobNotFound(job)
    return state
