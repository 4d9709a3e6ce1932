"""Archives: read or verify one without a store, and create, import or attach them as part of a store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from anabranch import limits
from anabranch.blobs.address import is_remote
from anabranch.blobs.keys import attached_key, new_attachment_id
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Writing
from anabranch.catalog.state.store import ATTACHMENT, Attachment
from anabranch.core.copy import CopyResult
from anabranch.core.display import Displayed
from anabranch.errors import CorruptArchive, InvalidArgument, NotFound, StoreNotFound
from anabranch.log.attachments import confirm, unconfirmed
from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback, no_progress
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.folders import path_text
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.store.addresses import absolute_address, is_folder
from anabranch.store.storage import open_blobs
from anabranch.streams.change import Changes
from anabranch.streams.directory.scopes import need_scope
from anabranch.streams.manager import Source
from anabranch.streams.requests import Result, check_request, page_request
from anabranch.transfer.archives.adopt import FileLocation, ImportTarget, adopt, earlier_import, in_new_logs
from anabranch.transfer.archives.attach import AttachRequest, survey
from anabranch.transfer.archives.digest import StreamDigest
from anabranch.transfer.archives.export import ArchiveReport, choose_range
from anabranch.transfer.archives.format import METADATA, ArchivedStream, Imported
from anabranch.transfer.archives.metadata import (
    ArchiveFlaw,
    FoundArchive,
    listing_flaws,
    read_metadata,
    refuse_flaws,
    verify,
)
from anabranch.transfer.archives.source import digest_of
from anabranch.transfer.jobs.archive_jobs import import_options
from anabranch.transfer.jobs.job_store import ProvidesJobStore
from anabranch.transfer.jobs.manager import Jobs

Url = str | os.PathLike[str]


def read_archive(url: Url, *, trusted: str | None = None, runtime: Runtime | None = None) -> FoundArchive:
    """Return what an archive's metadata says; reads none of its data files. `trusted` names a PEM file with the public
    key of the expected signer. Raises NotFound, CorruptArchive, FormatTooNew, InvalidArgument, and StoreUnavailable and
    its subclasses."""
    with open_archive_place(url, runtime or Runtime(), create=False) as (blobs, place):
        return read_metadata(blobs, place, trusted=trusted)


def verify_archive(
    url: Url,
    *,
    trusted: str | None = None,
    content: bool = True,
    progress: ProgressCallback = no_progress,
    runtime: Runtime | None = None,
) -> Iterator[ArchiveFlaw]:
    """Yield every flaw in the files of an archive; nothing for a sound one. Reads all bytes; with `content` also
    decodes every event and recomputes the digests of the segments. `progress` is called with bytes. Raises as
    `read_archive`, but flaws in the metadata are yielded like any other."""
    with open_archive_place(url, runtime or Runtime(), create=False) as (blobs, place):
        try:
            found = read_metadata(blobs, place, trusted=trusted)
        except CorruptArchive as exc:
            yield ArchiveFlaw(exc.file, exc.reason)
            return
        yield from verify(blobs, found, content=content, progress=progress)


@contextmanager
def open_archive_place(url: Url, runtime: Runtime, *, create: bool) -> Iterator[tuple[Blobs, str]]:
    """The files at an address, and the address as shown to people and kept in catalogs. Raises NotFound for a missing
    folder unless `create` is set, and as `open_blobs`."""
    text = path_text("the address of an archive", url)
    if text == "memory://":
        raise InvalidArgument("an archive must be in a folder or an object store, not in memory")
    place = absolute_address(text)
    try:
        blobs = open_blobs(place, runtime, create=create, read_once=True)
    except StoreNotFound as exc:
        raise NotFound(f"folder {place} not found") from exc
    with closing(blobs):
        yield blobs, place


class ArchiveHandle(ProvidesJobStore, Protocol):
    """A store, as far as archives need it."""

    @property
    def jobs(self) -> Jobs:
        """The jobs of the store."""
        ...


class Archives(Displayed):
    """Archives of streams: create them, import them, and attach files where they lie."""

    def __init__(self, changes: Changes, own: ArchiveHandle) -> None:
        self._changes = changes
        self._own = own

    def digest(self, source: Source, *, progress: ProgressCallback = no_progress) -> StreamDigest:
        """Return a digest of the events of a stream or stream range. It is the same for every copy, archive and import
        of them, wherever and however they are stored. Reads all events, one batch at a time; `progress` counts events.
        For a range that ends at a cut the digest never changes, unless a column that holds values gets a wider type.
        Raises StreamNotFound, InvalidCut, Truncated, CorruptBlob."""
        job_store = self._own.job_store
        with HeldLease(job_store.catalog, job_store.runtime, "digest", str(source)) as hold:
            with job_store.catalog.reading() as txn:
                chosen = choose_range(txn, StreamRange.of(source))
            return digest_of(job_store.catalog, job_store.blobs, job_store.runtime, chosen.stream_slice, hold, progress)

    def create(
        self,
        source: Source,
        url: Url,
        *,
        sign: str | None = None,
        in_the_clear: bool = False,
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> ArchiveReport:
        """Archive a stream or stream range as of now: one metadata file and plain Parquet files that any engine reads,
        in an empty folder or object store prefix.

        Runs as a job of this store and waits for it; see `Jobs.archive`. The metadata is written last, so an
        interrupted archive is not an archive; calling again continues it, as of when it began. `sign` names a PEM file
        with an Ed25519 key. Archives are not encrypted, so an encrypted store refuses unless `in_the_clear` is set.
        Memory: `window` data files. `progress` counts events. Raises InvalidArgument, AlreadyExists if an archive
        exists there, Conflict, JobRunning, JobStopped, and what reading the stream raises.
        """
        job = self._own.jobs.archive(
            source, url, sign=sign, in_the_clear=in_the_clear, window=window, progress=progress, request=request
        )
        report: ArchiveReport = job.wait()
        return report

    def create_scope(
        self,
        scope: str,
        url: Url,
        *,
        internal: bool = False,
        ephemeral: bool = False,
        sign: str | None = None,
        in_the_clear: bool = False,
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> ArchiveReport:
        """Archive all streams of a scope as of one moment; internal and ephemeral streams only if asked for. As
        `create`; also raises ScopeNotFound."""
        job = self._own.jobs.archive_scope(
            scope,
            url,
            internal=internal,
            ephemeral=ephemeral,
            sign=sign,
            in_the_clear=in_the_clear,
            window=window,
            progress=progress,
            request=request,
        )
        report: ArchiveReport = job.wait()
        return report

    def import_(
        self,
        url: Url,
        *,
        as_: str | StreamName | None = None,
        trusted: str | None = None,
        retention: bool = False,
        window: int = limits.JOB_WINDOW,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Imported:
        """Import an archive into this store, whatever kind of store it came from. Segments, offsets, append times and
        schemas stay the same. The name is `as_` (a scope name if a scope was archived; default: the archived name).

        Runs as a job of this store and waits for it; see `Jobs.import_archive`. The bytes are copied and verified
        first; then each stream appears whole, in one transaction. Nothing is visible of an interrupted import. Calling
        again changes nothing, or continues with the missing files. The retention policy is imported only with
        `retention`, since it would remove old events at once. Memory: `window` data files. `progress` is called with
        logical bytes. Raises CorruptArchive with the file that is missing, changed, truncated or unexpected;
        StreamExists, before anything is copied; ScopeNotFound, JobRunning, JobStopped, and as `read_archive`.
        """
        job = self._own.jobs.import_archive(
            url, as_=as_, trusted=trusted, retention=retention, window=window, progress=progress, request=request
        )
        imported: Imported = job.wait()
        return imported

    def attach(
        self,
        url: Url,
        as_: str | StreamName | None = None,
        *,
        key: str | None = None,
        time: str | None = None,
        stream: StreamId | str | None = None,
        checksums: bool = False,
        trusted: str | None = None,
        progress: ProgressCallback = no_progress,
        request: str | None = None,
    ) -> Imported:
        """Make Parquet files that lie elsewhere a stream of this store, without copying a byte. `url` is an archive, a
        folder of another store's compacted files, any folder of Parquet files, or one Parquet file.

        The result is an ordinary stream; appended events go to this store. The files stay where they are and are never
        written or removed; an error names the file if one is missing. For an archive only the metadata is read, and
        each file's checksum is verified when it is first opened. For other files the footers are read; `checksums` also
        computes checksums of all their bytes; `key` and `time` name columns. `stream` is the id of one stream if
        compacted files hold several. Times finer than µs are refused unless `Settings.truncate_times` is set; times
        without a zone are UTC. `progress` counts footers. Raises SchemaMismatch if the columns of two files disagree,
        NotFound, CorruptArchive, StreamExists, ScopeNotFound; InvalidArgument in an encrypted store, whose encryption
        would not cover these files.
        """
        job_store = self._own.job_store
        check_request(request)
        if job_store.runtime.sealer is not None:
            raise InvalidArgument(
                "this store is encrypted, and attached files would stay unencrypted: import them instead"
            )
        text, only = _folder_and_file(path_text("an address", url))
        with open_archive_place(text, job_store.runtime, create=False) as (source, place):
            if only is None and source.size(METADATA) is not None:
                if key is not None or time is not None or stream is not None:
                    raise InvalidArgument("an archive defines its keys, times and streams itself: omit these arguments")
                found = read_metadata(source, place, trusted=trusted)
                return self._attach_archive(source, found, as_, request)
            if trusted is not None:
                raise CorruptArchive(place, METADATA, "is missing, so nothing there is signed")
            if as_ is None:
                raise InvalidArgument("the new stream needs a name, as scope/name")
            name, ident = StreamName.parse(as_), self._changes.new_id()
            wanted = AttachRequest(
                name, ident, key, time, _stream_id(stream), only, checksums, job_store.runtime.settings.times
            )
            with HeldLease(job_store.catalog, job_store.runtime, "attach", str(name)) as hold:
                with job_store.catalog.reading() as txn:
                    need_scope(txn, name.scope)
                called = new_attachment_id(hold.begun_at, token(job_store.runtime.ids))

                def watch(what: str, done: int, total: int) -> None:
                    hold.renew()
                    progress(what, done, total)

                surveyed = survey(source, place, called, wanted, job_store.runtime.clock.now(), watch)
                asked = {"attached": place, "footers": surveyed.digest, "key": key, "time": time}
                import_target = ImportTarget(name, ident, asked, place)
                made = self._adopt(surveyed.stream, import_target, surveyed.files, hold, (called, place), request)
        return Imported(((name, made),))

    def unconfirmed_attachments(self) -> list[str]:
        """The addresses of attached files that are not read because the store was restored or rebuilt since they were
        attached."""
        with self._own.job_store.catalog.reading() as txn:
            return unconfirmed(txn)

    def confirm_attachment(self, url: Url) -> int:
        """Allow reading files that were attached before the store was restored or rebuilt. `url` is their address, as
        `unconfirmed_attachments` returns it. Check it first: opening it sends it this process's credentials for such
        addresses. Returns the number of attachments confirmed. Raises NotFound."""
        return confirm(self._own.job_store.catalog, absolute_address(url))

    def _attach_archive(
        self, source: Blobs, found: FoundArchive, as_: str | StreamName | None, request: str | None
    ) -> Imported:
        job_store = self._own.job_store
        refuse_flaws(found, listing_flaws(source, found.archive))
        done = []
        asked = {"archive": found.digest, "attached": found.place}
        wanted = [
            (stream, ImportTarget(name, self._changes.new_id(), asked, found.place, False, aliases, scope))
            for stream, name, aliases, scope in import_options(found, as_)
        ]
        for number, (stream, import_target) in enumerate(wanted):
            others = [] if number else [import_target for _, import_target in wanted[1:]]
            with HeldLease(job_store.catalog, job_store.runtime, "attach", str(import_target.name)) as hold:
                called = new_attachment_id(hold.begun_at, token(job_store.runtime.ids))
                files = {
                    file.name: FileLocation(attached_key(called, file.name, footer=False), file.size, file.checksum)
                    for file in stream.files
                }
                own = page_request(request, number)
                made = self._adopt(stream, import_target, files, hold, (called, found.place), own, others)
                done.append((import_target.name, made))
        return Imported(tuple(done))

    def _adopt(
        self,
        stream: ArchivedStream,
        import_target: ImportTarget,
        files: Any,
        hold: HeldLease,
        attached: tuple[str, str],
        request: str | None,
        others: Sequence[ImportTarget] = (),
    ) -> CopyResult:
        """Create one stream, unless a name of `others` is taken."""

        def act(txn: Writing, now: Micros) -> Result:
            hold.verify(txn)
            for each in others:
                earlier_import(txn, each)
            copied = adopt(
                txn, stream, import_target, now, spans_of=in_new_logs(txn, import_target.id, files, hold.begun_at)
            )
            if copied.copy == import_target.id:
                txn.put_state(ATTACHMENT, attached[0], Attachment(attached[1]))
            return copied.to_json()

        return CopyResult.from_json(
            self._changes.apply_internal(
                f"adopt {sorted(import_target.asked.items())} {import_target.name}", request, act
            )
        )


def _stream_id(stream: StreamId | str | None) -> StreamId | None:
    """A stream's id, given as a number or as 16 hex digits. Raises InvalidArgument."""
    try:
        return StreamId(int(stream, 16)) if isinstance(stream, str) else stream
    except ValueError as exc:
        raise InvalidArgument(f"'{stream}' is not a stream id: expected 16 hex digits") from exc


def _folder_and_file(text: str) -> tuple[str, str | None]:
    """Split an address into its folder and the one Parquet file it names, if it names one."""
    path, mark, options = text.partition("?")
    if not path.endswith(".parquet") or (not is_remote(text) and is_folder(Path(path))):
        return text, None
    folder, _, name = path.rpartition("/")
    return (folder or ("/" if path.startswith("/") else ".")) + mark + options, name
