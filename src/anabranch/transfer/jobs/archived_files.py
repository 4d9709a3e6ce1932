"""The state of an archiving job in the catalog: a plan for each stream, and the metadata entry of each complete data
file."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.job_plan import (
    ARCHIVE_PLAN,
    JOB_FILE,
    JobFile,
    JobFileKey,
    PlanKey,
    StoredArchivePlan,
    rows_of,
)
from anabranch.errors import CorruptCatalog, JobNotFound
from anabranch.transfer.archives.data_files import DigestedFile
from anabranch.transfer.archives.format import ArchivedFile, ArchivedStream
from anabranch.transfer.archives.plan import ArchivePlan
from anabranch.transfer.jobs.record import ARCHIVE, JobRow

_DIGEST_BYTES = 32


def put_archive_plans(txn: Writing, job: str, plans: Sequence[ArchivePlan]) -> None:
    """Store the plans of a new job."""
    for number, plan in enumerate(plans):
        stored = StoredArchivePlan(plan.stream.to_json(), plan.segments, plan.ranges)
        txn.put_state(ARCHIVE_PLAN, PlanKey(job, number), stored)


def archive_plan(txn: Reading, job: str, number: int) -> ArchivePlan:
    """The plan of a job's `number`th stream. Raises JobNotFound, CorruptCatalog."""
    stored = txn.state(ARCHIVE_PLAN, PlanKey(job, number))
    if stored is None:
        raise JobNotFound(job)
    try:
        return ArchivePlan(ArchivedStream.from_json(stored.stream), stored.segments, stored.ranges)
    except ValueError as exc:
        raise CorruptCatalog(f"the plan of stream {number} of job {job} can't be read: {exc}", "states") from exc


def record_files(txn: Writing, job: str, number: int, files: Sequence[tuple[int, DigestedFile]]) -> None:
    """Record that these files of a stream are durable and complete, by the number of their range."""
    for index, summary in files:
        stored = JobFile(summary.file.to_json(), b"".join(summary.blocks))
        txn.put_state(JOB_FILE, JobFileKey(job, number, index), stored)


def complete_files(txn: Reading, job: str) -> dict[tuple[int, int], DigestedFile]:
    """The complete files of a job, by the numbers of stream and range."""
    found = {}
    for key, stored in txn.states(JOB_FILE, prefix=rows_of(job)):
        blocks = stored.blocks
        sums = [blocks[at : at + _DIGEST_BYTES] for at in range(0, len(blocks), _DIGEST_BYTES)]
        try:
            found[key.number, key.part] = DigestedFile(ArchivedFile.from_json(stored.file), sums)
        except (LookupError, TypeError, ValueError) as exc:
            raise CorruptCatalog(f"file {key.part} of job {job} can't be read: {exc}", "states") from exc
    return found


def drop_files(txn: Writing, row: JobRow) -> None:
    """Delete the plans and file entries of a job that archives."""
    if row.verb != ARCHIVE:
        return
    for plan, _ in txn.states(ARCHIVE_PLAN, prefix=rows_of(row.id)):
        txn.drop_state(ARCHIVE_PLAN, plan)
    for file, _ in txn.states(JOB_FILE, prefix=rows_of(row.id)):
        txn.drop_state(JOB_FILE, file)
