"""Creating the jobs that archive a store's streams and import archives into it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.errors import Conflict, InvalidArgument
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream_range import StreamRange
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.requests import check_request
from anabranch.transfer.archives.adopt import earlier_import
from anabranch.transfer.archives.export import (
    ArchiveSelection,
    choose_range,
    choose_scope,
    earlier_archive,
    require_own_files,
)
from anabranch.transfer.archives.format import ArchivedStream
from anabranch.transfer.archives.metadata import FoundArchive, listing_flaws, read_metadata, refuse_flaws, signing_key
from anabranch.transfer.archives.nesting import require_none_inside, require_outside
from anabranch.transfer.archives.plan import plan_archive
from anabranch.transfer.jobs.archived_files import put_archive_plans
from anabranch.transfer.jobs.context import JobOptions
from anabranch.transfer.jobs.import_archive import target_of
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.record import (
    ARCHIVE,
    IMPORT,
    JobRow,
    JobState,
    member_id,
    open_jobs,
    put_job,
    put_member,
)
from anabranch.transfer.jobs.remote_tasks import Carrier

Url = str | os.PathLike[str]


class ArchiveJobs(ABC):
    """The methods of `Jobs` for archives."""

    _job_store: JobStore

    @abstractmethod
    def _alive(self) -> None:
        """Raises Closed."""

    @abstractmethod
    def _write_down(
        self,
        operation: str,
        act: Callable[[Writing, str, Micros], JobRow],
        sites: Sequence[JobStore],
        run_options: JobOptions,
    ) -> Job:
        """Create a job in one transaction, once per request id, and start it."""

    def archive(
        self,
        source: str | StreamName | StreamRange,
        url: Url,
        *,
        sign: str | None = None,
        in_the_clear: bool = False,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Archive a stream of this store, or a stream range, as of now, to a folder or bucket: data files in parallel,
        then the metadata. The job belongs to this store. Calling again before it has ended returns the same job.
        `progress` is called with events. Raises as `Archives.create`; Conflict if another job archives to that
        place."""
        part = StreamRange.of(source)
        return self._archive(
            str(part),
            url,
            lambda txn: _whole_range(txn, part),
            {"sign": sign, "scope": None},
            in_the_clear,
            JobOptions(request, window, carrier, progress),
        )

    def archive_scope(
        self,
        scope: str,
        url: Url,
        *,
        internal: bool = False,
        ephemeral: bool = False,
        sign: str | None = None,
        in_the_clear: bool = False,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Archive all streams of a scope as of one moment; internal and ephemeral streams only if asked for. As
        `archive`; also raises ScopeNotFound."""
        with self._job_store.catalog.reading() as txn:
            tags = dict(need_scope(txn, scope).tags)
        return self._archive(
            scope,
            url,
            lambda txn: choose_scope(txn, scope, internal=internal, ephemeral=ephemeral),
            {"sign": sign, "scope": {"name": scope, "tags": tags}, "internal": internal, "ephemeral": ephemeral},
            in_the_clear,
            JobOptions(request, window, carrier, progress),
        )

    def _archive(
        self,
        source: str,
        url: Url,
        choose: Callable[[Reading], Sequence[ArchiveSelection]],
        options: Mapping[str, Any],
        in_the_clear: bool,
        run_options: JobOptions,
    ) -> Job:
        self._alive()
        job_store = self._job_store
        if job_store.runtime.sealer is not None and not in_the_clear:
            raise InvalidArgument(
                "this store is encrypted, and an archive of it would not be: permit that with in_the_clear=True (--in-the-clear)"
            )
        check_request(run_options.request)
        if options["sign"] is not None:
            signing_key(options["sign"])
        with job_store.catalog.reading() as txn:  # before a folder is created, since the name may not exist
            plans = [plan_archive(txn, each) for each in choose(txn)]
        require_outside(url, job_store.open_location)
        with job_store.open_location(url, create=True) as (blobs, place):
            requested = JobRow(
                "", ARCHIVE, place, (), job_store.place, options, Micros(0), source=source, members=len(plans)
            )
            with job_store.catalog.reading() as txn:
                begun, existing = _archived_to(txn, requested), None
            if begun is None:  # else the files there are the job's own
                existing = earlier_archive(blobs, place, run_options.request)
                require_none_inside(blobs, place)
                require_own_files(blobs, place, [plan.folder for plan in plans])

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            row = replace(requested, id=ident, created_at=now)
            if (same := _archived_to(txn, row)) is not None:
                return same
            if existing is not None:
                row = replace(row, members=0, state=JobState.DONE, result=existing.to_json())
            else:
                chosen = {**options, "made_by": job_store.made_by, "request": run_options.request}
                amount = (sum(plan.events for plan in plans), sum(plan.bytes for plan in plans))
                row = replace(row, options=chosen, amount=amount)
                put_archive_plans(txn, ident, plans)
            put_job(txn, row)
            return row

        flags = "".join(f" {name}" for name in ("internal", "ephemeral", "sign") if options.get(name))
        return self._write_down(f"job archive {source} {place}{flags}", act, [job_store], run_options)

    def import_archive(
        self,
        url: Url,
        *,
        as_: str | StreamName | None = None,
        trusted: str | None = None,
        retention: bool = False,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Job:
        """Import an archive into this store: its files in parallel, then each stream in one transaction. Calling again
        before it has ended returns the same job, which continues with the missing files. `progress` is called with
        logical bytes. Raises as `Archives.import_`; StreamExists before anything is moved."""
        self._alive()
        job_store = self._job_store
        with job_store.open_location(url, create=False) as (blobs, place):
            found = read_metadata(blobs, place, trusted=trusted)
            refuse_flaws(found, listing_flaws(blobs, found.archive))
        options = {"archive": found.digest, "retention": retention}
        wished = import_options(found, as_)
        target = wished[0].name if found.archive.scope is None else check_scope(str(as_ or found.archive.scope))

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            amount = (found.archive.events, sum(file.logical for file in found.archive.files))
            row = JobRow(
                ident, IMPORT, str(target), (), {}, options, now, source=place, members=len(wished), amount=amount
            )
            if (same := _imported_from(txn, row)) is not None:
                return same
            for number, each in enumerate(wished):
                member = each.member(ident, number, now)
                earlier_import(txn, target_of(member, StreamId(0), options, place))  # raises if the name is taken
                put_member(txn, member)
            put_job(txn, row)
            return row

        operation = f"job import {found.digest} {target}{' retention' if retention else ''}"
        return self._write_down(operation, act, [job_store], JobOptions(request, window, carrier, progress))


class ImportOptions(NamedTuple):
    """The options of an archived stream's import: its name; whether its aliases are imported; the tags of its scope, if
    a missing scope is to be created."""

    stream: ArchivedStream
    name: StreamName
    aliases: bool
    scope: Mapping[str, str] | None

    def member(self, job: str, number: int, now: Micros) -> JobRow:
        """As a member of a job."""
        amount = (self.stream.events, sum(file.logical for file in self.stream.files))
        options = {"number": number, "aliases": self.aliases, "scope": self.scope}
        source = str(self.stream.name)
        return JobRow(
            member_id(job, number), IMPORT, str(self.name), (), {}, options, now, source=source, amount=amount
        )


def import_options(found: FoundArchive, as_: str | StreamName | None) -> list[ImportOptions]:
    """What the archived streams are to become if the archive is imported under the name `as_`. Raises InvalidName."""
    archive = found.archive
    if archive.scope is None:
        (stream,) = archive.streams
        name = stream.name if as_ is None else StreamName.parse(as_)
        return [ImportOptions(stream, name, False, None)]
    scope = check_scope(archive.scope if as_ is None else str(as_))
    return [
        ImportOptions(each, StreamName(scope, each.name.name), True, dict(archive.tags or {}))
        for each in archive.streams
    ]


def _whole_range(txn: Reading, part: StreamRange) -> list[ArchiveSelection]:
    return [choose_range(txn, part)]


def _archived_to(txn: Reading, requested: JobRow) -> JobRow | None:
    """The existing job that archives the same to that place, if any. Raises Conflict if it archives something else."""
    for row in open_jobs(txn, requested.target):
        if row.verb == ARCHIVE:
            same = all(row.options.get(name) == value for name, value in requested.options.items())
            if row.source == requested.source and same:
                return row
            raise Conflict(
                f"job {row.id} archives '{row.source}' to {row.target}; "
                f"continue or cancel it: anabranch job resume {row.id}, anabranch job cancel {row.id}"
            )
    return None


def _imported_from(txn: Reading, requested: JobRow) -> JobRow | None:
    """The existing job with the same import, if any."""
    for row in open_jobs(txn, requested.target):
        if (row.verb, row.source, dict(row.options)) == (IMPORT, requested.source, dict(requested.options)):
            return row
    return None
