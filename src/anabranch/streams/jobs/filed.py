"""What a job that archives keeps in the catalog: a plan for each stream, and of each data file that is whole what the
metadata will say of it."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.core.archive import ArchivedFile
from anabranch.errors import JobNotFound
from anabranch.streams.archive.files import Summed
from anabranch.streams.archive.plan import ArchivePlan
from anabranch.streams.jobs.row import ARCHIVE, PLAN, JobRow, plan_name

FILED: Final = "job_file"  # pieces by job, stream and range


def put_archive_plans(txn: Writing, job: str, plans: Sequence[ArchivePlan]) -> None:
    """Write down how the work of a new job is divided."""
    for number, plan in enumerate(plans):
        txn.put_piece(Checkpointed(PLAN, plan_name(job, number), plan.to_json()))


def archive_plan(txn: Reading, job: str, number: int) -> ArchivePlan:
    """The plan of a job's `number`th stream. Raises JobNotFound."""
    piece = txn.piece(PLAN, plan_name(job, number))
    if piece is None:
        raise JobNotFound(job)
    return ArchivePlan.from_json(piece.value)


def file_away(txn: Writing, job: str, number: int, files: Sequence[tuple[int, Summed]]) -> None:
    """These files of a stream are durable and whole, by the number of their range."""
    for index, summed in files:
        blocks = base64.b64encode(b"".join(summed.blocks)).decode()
        value = {"file": summed.file.to_json(), "blocks": blocks}
        txn.put_piece(Checkpointed(FILED, _name(job, number, index), value))


def filed(txn: Reading, job: str) -> dict[tuple[int, int], Summed]:
    """The files of a job that are whole, by the numbers of stream and range."""
    found = {}
    for piece in txn.pieces(FILED):
        owner, number, index = piece.name.split(".")
        if owner == job:
            value: Any = piece.value
            blocks = base64.b64decode(value["blocks"])
            sums = [blocks[at : at + 32] for at in range(0, len(blocks), 32)]
            found[int(number), int(index)] = Summed(ArchivedFile.from_json(value["file"]), sums)
    return found


def drop_files(txn: Writing, row: JobRow) -> None:
    """Forget the plans and files of a job that archives."""
    if row.verb != ARCHIVE:
        return
    for number in range(row.members):
        txn.drop_piece(PLAN, plan_name(row.id, number))
    for number, index in filed(txn, row.id):
        txn.drop_piece(FILED, _name(row.id, number, index))


def _name(job: str, number: int, index: int) -> str:
    return f"{job}.{number:06d}.{index:06d}"
