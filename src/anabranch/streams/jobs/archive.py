"""Archiving as a job: data files are written side by side, what is known of each goes into the catalog, and the metadata
is written last of all.

Its row lies in the catalog of the store that is archived. A run that goes on keeps the files that are whole: of those that
are known to be, the bytes are compared with their digest; one that is not known to be, because the run that wrote it was
killed, is read back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Reading
from anabranch.core.archive import Archive, ArchivedFile, ArchivedStream
from anabranch.errors import CorruptArchive
from anabranch.streams.archive.export import ArchiveReport, file_there, finish_archive, give_up, write_file
from anabranch.streams.archive.files import Summed
from anabranch.streams.archive.metadata import read_events, read_file, signing_key
from anabranch.streams.archive.plan import ArchivePlan
from anabranch.streams.archive.source import Source
from anabranch.streams.jobs.bundles import bundles
from anabranch.streams.jobs.carry import Bundle, Porter
from anabranch.streams.jobs.filed import archive_plan, drop_files, file_away, filed
from anabranch.streams.jobs.means import Means, insist
from anabranch.streams.jobs.row import ARCHIVE, JobRow, State, need_job
from anabranch.streams.jobs.site import Site


@dataclass(frozen=True)
class Filing(Bundle):
    """Data files of one stream of an archive in `place`: the numbers of their ranges in the stream's plan, and what is
    known of those that were whole when the run began."""

    place: str
    number: int
    indices: tuple[int, ...]
    known: Mapping[int, ArchivedFile] = field(default_factory=dict)

    def move(self, source: Site, target: Site, porter: Porter) -> None:
        """Write what is missing of them. Raises as `write_file`."""
        with target.catalog.reading() as snapshot:
            plan = archive_plan(snapshot, self.job, self.number)
        with target.open_place(self.place, create=True) as (blobs, place):
            self.write(plan, target, blobs, place, porter)

    def write(self, plan: ArchivePlan, site: Site, blobs: Blobs, place: str, porter: Porter) -> int:
        """The same with all at hand. How many of them were there already."""
        source = Source(site.catalog, site.blobs, site.runtime, plan.stream.id)
        written: list[tuple[int, Summed]] = []
        size = kept = 0
        for index in self.indices:
            range_ = plan.ranges[index]
            name, part = plan.file_name(range_), plan.part(range_.segment)
            porter.control.look()
            porter.hold.renew()
            if index in self.known and _whole(blobs, place, self.known[index]):
                kept += 1
                porter.moved(range_.events, range_.bytes)
                continue
            summed = file_there(blobs, name, part, range_)
            if summed is not None:
                kept += 1
                porter.moved(range_.events, range_.bytes)
            else:
                with porter.gauge.holding() as held:

                    def told(events: int, count: int, held: Any = held) -> None:
                        held.add(count)
                        porter.moved(events, 0)

                    summed = write_file(source, blobs, place, name, part, range_, told)
            written.append((index, summed))
            size += range_.bytes
            if size >= limits.JOB_BLOB_BYTES:
                self._file_away(site, porter, written)
                written, size = [], 0
        if written:
            self._file_away(site, porter, written)
        return kept

    def _file_away(self, site: Site, porter: Porter, written: Sequence[tuple[int, Summed]]) -> None:
        def act() -> None:
            with site.catalog.writing(f"job {self.job}") as txn:
                porter.control.step(txn)
                file_away(txn, self.job, self.number, written)

        insist(site.runtime.tasks, act)


class Archiving:
    """One run of a job that archives."""

    def __init__(self, means: Means) -> None:
        self._means = means
        self._site = means.target
        self._lock = means.target.runtime.tasks.lock()
        self._done = self._total = self._kept = 0

    def run(self, row: JobRow) -> JobRow:
        """Write what is missing of the archive; the job is done then. Raises Conflict where somebody else archives to its
        place, NotFound, InvalidArgument for a signing key that is gone, and as `write_file`."""
        sign = row.options["sign"]
        if sign is not None:
            signing_key(sign)
        with self._site.open_place(row.target, create=True) as (blobs, place):
            with self._site.catalog.reading() as snapshot:
                plans = [archive_plan(snapshot, row.id, number) for number in range(row.members)]
                known = filed(snapshot, row.id)
            self._total = row.events
            filings = [each for number, plan in enumerate(plans) for each in self._bundles(row, number, plan, known)]
            if self._means.carrier is None:
                self._write(plans, filings, blobs, place)
            else:
                self._kept = len(known)
                self._carry(filings)
            return self._finish(row, plans, blobs, place)

    def _bundles(
        self, row: JobRow, number: int, plan: ArchivePlan, known: Mapping[tuple[int, int], Summed]
    ) -> list[Filing]:
        files = {index: summed.file for (stream, index), summed in known.items() if stream == number}
        edges = bundles(
            [each.bytes for each in plan.ranges],
            bytes_max=limits.JOB_RANGE_BYTES,
            count_max=limits.JOB_BUNDLE_RANGES_MAX,
        )
        owner, lease = self._means.control.owner, self._means.hold.lease
        return [
            Filing(
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

    def _write(self, plans: Sequence[ArchivePlan], filings: Sequence[Filing], blobs: Blobs, place: str) -> None:
        means = self._means
        porter = Porter(means.control, means.hold, means.gauge, self._moved)

        def work(filing: Filing) -> None:
            kept = filing.write(plans[filing.number], self._site, blobs, place, porter)
            with self._lock:
                self._kept += kept

        means.window.run(
            [partial(work, each) for each in filings], interrupted=lambda: means.control.stop(State.PAUSED)
        )

    def _carry(self, filings: Sequence[Filing]) -> None:
        assert self._means.carrier is not None
        try:
            self._means.carrier(filings)
        except Exception:
            self._means.control.look()  # what was asked to stop has not failed
            raise
        self._means.control.look()

    def _moved(self, events: int, _size: int) -> None:
        """`progress` hears of events."""
        with self._lock:
            self._done += events
            self._means.progress("archiving", self._done, self._total)

    def _read(
        self, blobs: Blobs, place: str, stream: ArchivedStream, file: ArchivedFile
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """What a file holds, for the sum of a block that lies in several."""
        self._means.control.look()
        return read_events(blobs, place, stream, file)

    def _finish(self, row: JobRow, plans: Sequence[ArchivePlan], blobs: Blobs, place: str) -> JobRow:
        self._means.control.check()
        with self._site.catalog.reading() as snapshot:
            whole = filed(snapshot, row.id)
        streams = tuple(
            plan.archived(
                [whole[number, index] for index in range(len(plan.ranges))],
                partial(self._read, blobs, place, plan.stream),
            )
            for number, plan in enumerate(plans)
        )
        scope, options = row.options["scope"] or {}, row.options
        archive = Archive(
            streams, row.created_at, options["made_by"], scope.get("name"), scope.get("tags"), options["request"]
        )
        found = finish_archive(blobs, place, archive, [plan.folder for plan in plans], options["sign"])
        report = ArchiveReport.of(found, self._kept)

        def act() -> JobRow:
            with self._site.catalog.writing() as txn:
                done = self._means.control.step(txn)
                drop_files(txn, done)
                done = replace(done.released(State.DONE), result=report.to_json())
                txn.put_piece(done.to_piece())
                return done

        return insist(self._site.runtime.tasks, act)


def _whole(blobs: Blobs, place: str, file: ArchivedFile) -> bool:
    """True if the file's bytes are those that were written."""
    try:
        read_file(blobs, place, file)
    except CorruptArchive:
        return False
    return True


def files_of(txn: Reading, job: str) -> list[str]:
    """The names of the data files that a job may have written; none of any other kind of job. Raises JobNotFound."""
    row = need_job(txn, job)
    if row.verb != ARCHIVE or row.state.ended:
        return []
    plans = [archive_plan(txn, job, number) for number in range(row.members)]
    return [plan.file_name(each) for plan in plans for each in plan.ranges]


def remove_files(site: Site, row: JobRow, names: Sequence[str]) -> None:
    """Remove the files of a job that was cancelled. Raises StoreUnavailable and its kind."""
    if names:
        with site.open_place(row.target, create=True) as (blobs, _):
            give_up(blobs, names)
