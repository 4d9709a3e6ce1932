"""Archiving as a job: data files are written in parallel, an entry for each goes into the catalog, and the metadata is
written last.

The job's row is in the catalog of the archived store. A resumed run keeps complete files: if the catalog has an entry
for a file, its bytes are compared with their digest; a file without an entry, because the run that wrote it was killed,
is read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Reading, Writing
from anabranch.errors import CorruptArchive
from anabranch.log.recovery.identity import store_id
from anabranch.transfer.archives.data_files import DigestedFile
from anabranch.transfer.archives.export import (
    ArchiveReport,
    existing_file,
    finish_archive,
    remove_archive_files,
    write_file,
)
from anabranch.transfer.archives.format import Archive, ArchivedFile, ArchivedStream
from anabranch.transfer.archives.metadata import read_events, read_file, signing_key
from anabranch.transfer.archives.plan import ArchivePlan
from anabranch.transfer.archives.source import SourceReader
from anabranch.transfer.jobs.archived_files import archive_plan, complete_files, drop_files, record_files
from anabranch.transfer.jobs.bundles import bundles
from anabranch.transfer.jobs.context import JobContext, ProgressCounter
from anabranch.transfer.jobs.control import TaskContext
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.record import ARCHIVE, JobRow, need_job
from anabranch.transfer.jobs.remote_tasks import Bundle


@dataclass(frozen=True)
class ArchiveBundle(Bundle):
    """Data files of one stream of an archive in `place`: the numbers of their ranges in the stream's plan, and the
    entries of those that were complete when the run began."""

    place: str
    number: int
    indices: tuple[int, ...]
    complete: Mapping[int, ArchivedFile] = field(default_factory=dict)

    def move(self, source: JobStore, target: JobStore, task: TaskContext) -> None:
        """Write the missing data files. Raises as `write_file`."""
        with target.catalog.reading() as snapshot:
            plan = archive_plan(snapshot, self.job, self.number)
        with target.open_location(self.place, create=True) as (blobs, place):
            self.write(plan, target, blobs, place, task)

    def write(self, plan: ArchivePlan, job_store: JobStore, blobs: Blobs, place: str, task: TaskContext) -> int:
        """As `move`, with the plan and the opened place given. Returns how many files existed already."""
        source = SourceReader(job_store.catalog, job_store.blobs, job_store.runtime, plan.stream.id)
        written: list[tuple[int, DigestedFile]] = []
        size = kept = 0
        for index in self.indices:
            range_ = plan.ranges[index]
            name, part = plan.file_name(range_), plan.part(range_.segment)
            task.control.check_state()
            task.hold.renew()
            if index in self.complete and _whole(blobs, place, self.complete[index]):
                kept += 1
                task.moved(range_.events, range_.bytes)
                continue
            summary = existing_file(blobs, name, part, range_)
            if summary is not None:
                kept += 1
                task.moved(range_.events, range_.bytes)
            else:
                with task.memory.holding() as held:

                    def on_rows(events: int, count: int, held: Any = held) -> None:
                        held.add(count)
                        task.moved(events, 0)

                    summary = write_file(source, blobs, place, name, part, range_, on_rows)
            written.append((index, summary))
            size += range_.bytes
            if size >= limits.JOB_BLOB_BYTES:
                self._record(task, written)
                written, size = [], 0
        if written:
            self._record(task, written)
        return kept

    def _record(self, task: TaskContext, written: Sequence[tuple[int, DigestedFile]]) -> None:
        task.control.act(lambda txn, _: record_files(txn, self.job, self.number, written), on=f"job {self.job}")


class ArchiveRun:
    """One run of a job that archives."""

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._job_store = context.target
        self._lock = context.target.runtime.tasks.lock()
        self._kept = 0

    def run(self, row: JobRow) -> JobRow:
        """Write what is missing of the archive and end the job. Raises Conflict if another process archives to the same
        place, NotFound, InvalidArgument for a signing key that no longer exists, and as `write_file`."""
        sign = row.options["sign"]
        if sign is not None:
            signing_key(sign)
        with self._job_store.open_location(row.target, create=True) as (blobs, place):
            with self._job_store.catalog.reading() as snapshot:
                plans = [archive_plan(snapshot, row.id, number) for number in range(row.members)]
                complete = complete_files(snapshot, row.id)
            archive_bundles = [
                each for number, plan in enumerate(plans) for each in self._bundles(row, number, plan, complete)
            ]
            if self._context.carrier is None:
                self._write(row, plans, archive_bundles, blobs, place)
            else:
                self._kept = len(complete)
                self._context.elsewhere(lambda carrier: carrier(archive_bundles))
            return self._finish(row, plans, blobs, place)

    def _bundles(
        self, row: JobRow, number: int, plan: ArchivePlan, complete: Mapping[tuple[int, int], DigestedFile]
    ) -> list[ArchiveBundle]:
        files = {index: summary.file for (stream, index), summary in complete.items() if stream == number}
        edges = bundles(
            [each.bytes for each in plan.ranges],
            bytes_max=limits.JOB_RANGE_BYTES,
            count_max=limits.JOB_BUNDLE_RANGES_MAX,
        )
        owner, lease = self._context.control.owner, self._context.hold.lease
        return [
            ArchiveBundle(
                row.id,
                owner,
                lease,
                row.target,
                number,
                tuple(range(low, high)),
                {index: files[index] for index in range(low, high) if index in files},
            )
            for low, high in edges
        ]

    def _write(
        self,
        row: JobRow,
        plans: Sequence[ArchivePlan],
        archive_bundles: Sequence[ArchiveBundle],
        blobs: Blobs,
        place: str,
    ) -> None:
        counter = ProgressCounter(self._context, "archiving", row.events)
        task = self._context.task(lambda events, _: counter.add(events))

        def work(bundle: ArchiveBundle) -> None:
            kept = bundle.write(plans[bundle.number], self._job_store, blobs, place, task)
            with self._lock:
                self._kept += kept

        self._context.run([partial(work, each) for each in archive_bundles])

    def _read(
        self, blobs: Blobs, place: str, stream: ArchivedStream, file: ArchivedFile
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The contents of a file, for the digest of a block that spans several files."""
        self._context.control.check_state()
        return read_events(blobs, place, stream, file)

    def _finish(self, row: JobRow, plans: Sequence[ArchivePlan], blobs: Blobs, place: str) -> JobRow:
        self._context.control.check()
        with self._job_store.catalog.reading() as snapshot:
            whole = complete_files(snapshot, row.id)
        streams = tuple(
            plan.archived(
                [whole[number, index] for index in range(len(plan.ranges))],
                partial(self._read, blobs, place, plan.stream),
            )
            for number, plan in enumerate(plans)
        )
        scope, options = row.options["scope"] or {}, row.options
        archive = Archive(
            streams,
            row.created_at,
            options["made_by"],
            scope.get("name"),
            scope.get("tags"),
            options["request"],
            store_id(self._job_store.catalog, self._job_store.runtime),
        )
        found = finish_archive(blobs, place, archive, [plan.folder for plan in plans], options["sign"])
        report = ArchiveReport.of(found, self._kept)

        def act(txn: Writing, row: JobRow) -> JobRow:
            drop_files(txn, row)
            return replace(row, result=report.to_json())

        return self._context.control.end(act)


def _whole(blobs: Blobs, place: str, file: ArchivedFile) -> bool:
    """True if the file has the bytes that were written."""
    try:
        read_file(blobs, place, file)
    except CorruptArchive:
        return False
    return True


def files_of(txn: Reading, job: str) -> list[str]:
    """The names of the data files that a job may have written; empty for other kinds of jobs. Raises JobNotFound."""
    row = need_job(txn, job)
    if row.verb != ARCHIVE or row.state.ended:
        return []
    plans = [archive_plan(txn, job, number) for number in range(row.members)]
    return [plan.file_name(each) for plan in plans for each in plan.ranges]


def remove_files(job_store: JobStore, row: JobRow, names: Sequence[str]) -> None:
    """Remove the files of a cancelled job. Raises StoreUnavailable and its subclasses."""
    if names:
        with job_store.open_location(row.target, create=True) as (blobs, _):
            remove_archive_files(blobs, names)
