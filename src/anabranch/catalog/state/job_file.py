"""The complete data files of an archiving job. Deleted when the job has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from anabranch.catalog.state.kind import KeyText, StateKind, state_kind


@dataclass(frozen=True, slots=True)
class JobFileKey:
    """The file of the `index`th range of a job's `number`th stream, both from 0."""

    job: str
    number: int
    index: int


@dataclass(frozen=True, slots=True)
class JobFile:
    """The file's entry for the archive's metadata (`transfer.archives.format`), and the digests of its blocks, 32 bytes
    each."""

    file: Mapping[str, Any]
    blocks: bytes


def files_of(job: str) -> str:
    """The prefix of the keys of a job's files."""
    return f"{job}/"


def _decode(text: str) -> JobFileKey:
    job, number, index = text.split("/")
    return JobFileKey(job, int(number), int(index))


JOB_FILE: Final[StateKind[JobFileKey, JobFile]] = state_kind(
    "job_file",
    by="the job's id, the number of the stream and the number of its range, 6 digits each, with `/` between",
    key=KeyText(lambda key: f"{files_of(key.job)}{key.number:06d}/{key.index:06d}", _decode),
    value=JobFile,
    example=(
        JobFileKey("0a1b2c3d4e5f", 0, 3),
        JobFile({"file": "raw-2bcd55e1e5c62ee7/0000000000000000-0000000000000000.parquet"}, b"0123456789abcdef" * 2),
    ),
)
