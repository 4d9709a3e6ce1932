"""The streams of a job of several: each is a member, with a row like a job's own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.job import FORMAT, JOB, JobRow
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, versioned


def members_prefix(job: str) -> str:
    """The prefix of the ids of a job's members."""
    return f"{job}."


JOB_MEMBER: Final[StateKind[str, JobRow]] = state_kind(
    "job_member",
    by="the job's id, `.` and the number of the member, 6 digits",
    key=TEXT_KEY,
    value=versioned(codec_of(JobRow), FORMAT, "job"),
    identity=lambda row: row.id,
    example=("0a1b2c3d4e5f.000002", replace(JOB.example.value, id="0a1b2c3d4e5f.000002")),
)
