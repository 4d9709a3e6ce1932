"""The jobs that make archives of a store's streams and bring archives into it."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.core.archive import ArchivedStream
from anabranch.errors import Conflict, InvalidArgument
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName, check_scope
from anabranch.model.stream_range import StreamRange
from anabranch.streams.archive.adopt import made_before as imported_before
from anabranch.streams.archive.export import Chosen, choose_range, choose_scope, made_before, refuse_strangers
from anabranch.streams.archive.metadata import Found, listing_flaws, read_metadata, refuse_flaws, signing_key
from anabranch.streams.archive.plan import plan_archive
from anabranch.streams.jobs.carry import Carrier
from anabranch.streams.jobs.filed import put_archive_plans
from anabranch.streams.jobs.how import How
from anabranch.streams.jobs.import_archive import wish_of
from anabranch.streams.jobs.job import Job
from anabranch.streams.jobs.members import MEMBER, member_id
from anabranch.streams.jobs.row import ARCHIVE, IMPORT, JOB, JobRow, State
from anabranch.streams.jobs.site import Site
from anabranch.streams.requests import check_request
from anabranch.streams.scope import need_scope

Url = str | os.PathLike[str]


class ArchiveJobs(ABC):
    """What `Jobs` does with archives."""

    _site: Site

    @abstractmethod
    def _alive(self) -> None:
        """Raises Closed."""

    @abstractmethod
    def _write_down(
        self,
        operation: str,
        act: Callable[[Writing, str, Micros], JobRow],
        sites: Sequence[Site],
        how: How,
    ) -> Job:
        """Make a job in one transaction, once for a request id, and start it."""

    def archive(
        self,
        source: str | StreamName | StreamRange,
        url: Url,
        *,
        sign: str | None = None,
        in_the_clear: bool = False,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Job:
        """Archive a stream of this store, or a range of one, as of now, to a folder or bucket: data files in parallel, then
        the metadata. Its job is this store's. Asked for again while it is under way, it is the same job. `progress` hears
        of events. Raises as `StoreStreams.archive`; Conflict where another job archives to that place."""
        part = StreamRange.of(source)
        return self._archive(
            str(part),
            url,
            lambda txn: _whole_range(txn, part),
            {"sign": sign, "scope": None},
            in_the_clear,
            How(request, window, carrier, progress),
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
        progress: Watch = silent,
        request: str | None = None,
    ) -> Job:
        """Archive all streams of a scope as of one moment; the store's own and ephemeral ones only if asked. As `archive`;
        also raises ScopeNotFound."""
        with self._site.catalog.reading() as txn:
            tags = dict(need_scope(txn, scope).tags)
        return self._archive(
            scope,
            url,
            lambda txn: choose_scope(txn, scope, internal=internal, ephemeral=ephemeral),
            {"sign": sign, "scope": {"name": scope, "tags": tags}, "internal": internal, "ephemeral": ephemeral},
            in_the_clear,
            How(request, window, carrier, progress),
        )

    def _archive(
        self,
        source: str,
        url: Url,
        choose: Callable[[Reading], Sequence[Chosen]],
        options: Mapping[str, Any],
        in_the_clear: bool,
        how: How,
    ) -> Job:
        self._alive()
        site = self._site
        if site.runtime.sealer is not None and not in_the_clear:
            raise InvalidArgument(
                "this store is encrypted, and an archive of it is not: allow that by in_the_clear=True (--in-the-clear)"
            )
        check_request(how.request)
        if options["sign"] is not None:
            signing_key(options["sign"])
        with site.catalog.reading() as txn:  # a name that is not there leaves no folder behind
            plans = [plan_archive(txn, each) for each in choose(txn)]
        with site.open_place(url, create=True) as (blobs, place):
            wanted = JobRow("", ARCHIVE, place, (), site.place, options, Micros(0), source=source, members=len(plans))
            with site.catalog.reading() as txn:
                begun, there = _archived_to(txn, wanted), None
            if begun is None:  # else what lies there is its own
                there = made_before(blobs, place, how.request)
                refuse_strangers(blobs, place, [plan.folder for plan in plans])

        def act(txn: Writing, ident: str, now: Micros) -> JobRow:
            row = replace(wanted, id=ident, created_at=now)
            if (same := _archived_to(txn, row)) is not None:
                return same
            if there is not None:
                row = replace(row, members=0, state=State.DONE, result=there.to_json())
            else:
                chosen = {**options, "made_by": site.made_by, "request": how.request}
                amount = (sum(plan.events for plan in plans), sum(plan.bytes for plan in plans))
                row = replace(row, options=chosen, amount=amount)
                put_archive_plans(txn, ident, plans)
            txn.put_piece(row.to_piece())
            return row

        said = "".join(f" {name}" for name in ("internal", "ephemeral", "sign") if options.get(name))
        return self._write_down(f"job archive {source} {place}{said}", act, [site], how)

    def import_archive(
        self,
        url: Url,
        *,
        as_: str | StreamName | None = None,
        trusted: str | None = None,
        retention: bool = False,
        window: int = limits.JOB_WINDOW,
        carrier: Carrier | None = None,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Job:
        """Bring an archive into this store: its files in parallel, then each stream in one transaction. Asked for again
        while it is under way, it is the same job, which goes on with the files that are missing. `progress` hears of
        logical bytes. Raises as `StoreStreams.import_archive`; StreamExists before anything is moved."""
        self._alive()
        site = self._site
        with site.open_place(url, create=False) as (blobs, place):
            found = read_metadata(blobs, place, trusted=trusted)
            refuse_flaws(found, listing_flaws(blobs, found.archive))
        options = {"archive": found.digest, "retention": retention}
        wished = wishes(found, as_)
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
                imported_before(txn, wish_of(member, StreamId(0), options, place))  # refuses names that are taken
                txn.put_piece(member.to_piece(MEMBER))
            txn.put_piece(row.to_piece())
            return row

        operation = f"job import {found.digest} {target}{' retention' if retention else ''}"
        return self._write_down(operation, act, [site], How(request, window, carrier, progress))


class Wished(NamedTuple):
    """What an archived stream is to become: its name; whether its aliases come along; the tags of its scope, where that is
    to be made if it is not there."""

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


def wishes(found: Found, as_: str | StreamName | None) -> list[Wished]:
    """What the archived streams are to become, where the archive is called `as_`. Raises InvalidName."""
    archive = found.archive
    if archive.scope is None:
        (stream,) = archive.streams
        name = stream.name if as_ is None else StreamName.parse(as_)
        return [Wished(stream, name, False, None)]
    scope = check_scope(archive.scope if as_ is None else str(as_))
    return [Wished(each, StreamName(scope, each.name.name), True, dict(archive.tags or {})) for each in archive.streams]


def _whole_range(txn: Reading, part: StreamRange) -> list[Chosen]:
    return [choose_range(txn, part)]


def _archived_to(txn: Reading, wanted: JobRow) -> JobRow | None:
    """The job that archives to that place already, if it is the same. Raises Conflict for another one."""
    for row in map(JobRow.from_piece, txn.pieces(JOB)):
        if row.verb == ARCHIVE and row.target == wanted.target and not row.state.ended:
            same = all(row.options.get(name) == value for name, value in wanted.options.items())
            if row.source == wanted.source and same:
                return row
            raise Conflict(
                f"job {row.id} archives '{row.source}' to {row.target}; "
                f"go on with it or give it up: anabranch job resume {row.id}, anabranch job cancel {row.id}"
            )
    return None


def _imported_from(txn: Reading, wanted: JobRow) -> JobRow | None:
    """The job that imports the same already."""
    for row in map(JobRow.from_piece, txn.pieces(JOB)):
        same = (row.source, row.target, dict(row.options)) == (wanted.source, wanted.target, dict(wanted.options))
        if row.verb == IMPORT and same and not row.state.ended:
            return row
    return None
