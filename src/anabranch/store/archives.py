"""Archives, with or without a store at hand; and what the streams of a store do with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from anabranch import limits
from anabranch.blobs.address import is_remote
from anabranch.blobs.attached import ATTACHMENT
from anabranch.blobs.keys import attached_key, attachment
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Checkpointed, Writing
from anabranch.core.archive import METADATA, ArchivedStream, Imported
from anabranch.core.copy import Copied
from anabranch.core.digest import StreamDigest
from anabranch.errors import CorruptArchive, InvalidArgument, NotFound, StoreNotFound
from anabranch.log.lease import Hold
from anabranch.log.watch import Watch, silent
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.store.places import lasting, open_blobs
from anabranch.streams.algebra import Source
from anabranch.streams.archive.adopt import Lying, Wish, adopt, in_new_logs, made_before
from anabranch.streams.archive.attach import Wanted, survey
from anabranch.streams.archive.export import ArchiveReport, choose_range
from anabranch.streams.archive.metadata import (
    ArchiveFlaw,
    Found,
    listing_flaws,
    read_metadata,
    refuse_flaws,
    verify,
)
from anabranch.streams.archive.source import digest_of
from anabranch.streams.change import Changes
from anabranch.streams.jobs.archives import wishes
from anabranch.streams.jobs.manager import Jobs
from anabranch.streams.jobs.site import Sited
from anabranch.streams.requests import Result, check_request, page_of
from anabranch.streams.scope import need_scope

Url = str | os.PathLike[str]


def read_archive(url: Url, *, trusted: str | None = None, runtime: Runtime | None = None) -> Found:
    """What an archive says of itself; none of its data files is read. `trusted` names a PEM file with the public key
    that it is to be signed by. Raises NotFound, CorruptArchive, FormatTooNew, InvalidArgument, StoreUnavailable and its
    kind."""
    with opened(url, runtime or Runtime(), create=False) as (blobs, place):
        return read_metadata(blobs, place, trusted=trusted)


def verify_archive(
    url: Url,
    *,
    trusted: str | None = None,
    content: bool = True,
    progress: Watch = silent,
    runtime: Runtime | None = None,
) -> Iterator[ArchiveFlaw]:
    """All that is wrong with the files of an archive; nothing for a whole one. Reads all its bytes; with `content` also
    every event, and works the digests of segments out anew. `progress` hears of bytes. Raises as `read_archive`, but
    what is wrong with the metadata is told like anything else."""
    with opened(url, runtime or Runtime(), create=False) as (blobs, place):
        try:
            found = read_metadata(blobs, place, trusted=trusted)
        except CorruptArchive as exc:
            yield ArchiveFlaw(exc.file, exc.why)
            return
        yield from verify(blobs, found, content=content, progress=progress)


@contextmanager
def opened(url: Url, runtime: Runtime, *, create: bool) -> Iterator[tuple[Blobs, str]]:
    """The files of a place, and what it is called for people and in catalogs. Raises NotFound for a folder that is not
    there unless it may be created, and as `open_blobs`."""
    text = os.fspath(url)
    if text == "memory://":
        raise InvalidArgument("an archive lies in a folder or an object store, not in memory")
    place = lasting(text)
    try:
        blobs = open_blobs(place, runtime, create=create, read_once=True)
    except StoreNotFound as exc:
        raise NotFound(f"there is no folder {place}") from exc
    try:
        yield blobs, place
    finally:
        blobs.close()


class Housed(Sited, Protocol):
    """A store."""

    @property
    def jobs(self) -> Jobs:
        """Its jobs."""
        ...


class Archiving(Changes):
    """What the streams of a store do with archives."""

    own: Housed

    def digest(self, source: Source, *, progress: Watch = silent) -> StreamDigest:
        """A digest of the events of a stream, or of a range of one, that is the same for every copy, archive and import
        of them, wherever and however they are stored. Reads them all, a batch at a time; `progress` counts events. For
        a range whose end is a cut it never changes, unless a column that holds something gets a wider type. Raises
        StreamNotFound, InvalidCut, Truncated, CorruptBlob."""
        site = self.own.site
        with Hold(site.catalog, site.runtime, "digest", str(source)) as hold:
            with site.catalog.reading() as txn:
                chosen = choose_range(txn, StreamRange.of(source))
            return digest_of(site.catalog, site.blobs, site.runtime, chosen.stretch, hold, progress)

    def archive(
        self,
        source: Source,
        url: Url,
        *,
        sign: str | None = None,
        in_the_clear: bool = False,
        window: int = limits.JOB_WINDOW,
        progress: Watch = silent,
        request: str | None = None,
    ) -> ArchiveReport:
        """Archive a stream, or a range of one, as of now: one metadata file and plain Parquet files that any engine
        reads, in an empty folder or prefix of an object store.

        A job of this store does it, which this call waits for; see `Jobs.archive`. The metadata is written last, so what
        was interrupted is no archive; asked again, it goes on, as of when it began. `sign` names a PEM file with an
        Ed25519 key. An archive is not encrypted: that of an encrypted store must be asked for by `in_the_clear`. Memory:
        `window` data files. `progress` counts events. Raises InvalidArgument, AlreadyExists where there is an archive
        already, Conflict, JobRunning, JobStopped, and what reading the stream raises.
        """
        job = self.own.jobs.archive(
            source, url, sign=sign, in_the_clear=in_the_clear, window=window, progress=progress, request=request
        )
        report: ArchiveReport = job.wait()
        return report

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
        progress: Watch = silent,
        request: str | None = None,
    ) -> ArchiveReport:
        """Archive all streams of a scope as of one moment; the store's own and ephemeral ones only if asked. As
        `archive`; also raises ScopeNotFound."""
        job = self.own.jobs.archive_scope(
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

    def import_archive(
        self,
        url: Url,
        *,
        as_: str | StreamName | None = None,
        trusted: str | None = None,
        retention: bool = False,
        window: int = limits.JOB_WINDOW,
        progress: Watch = silent,
        request: str | None = None,
    ) -> Imported:
        """Bring an archive into this store, whatever kind of store it came from: the same segments, offsets, append times
        and schemas, under the name `as_` (of a scope, where a scope was archived; default: the archived name).

        A job of this store does it, which this call waits for; see `Jobs.import_archive`. The bytes are copied and
        verified first; each stream then appears whole, in one transaction. Interrupted, nothing of it is seen. Asked again
        it changes nothing, or goes on with the files that are missing. The policy of retention comes along only with
        `retention`: old events would be gone at once. Memory: `window` data files. `progress` hears of logical bytes.
        Raises CorruptArchive with the file that is missing, changed, cut short or strange; StreamExists, before anything
        is copied; ScopeNotFound, JobRunning, JobStopped, and as `read_archive`.
        """
        job = self.own.jobs.import_archive(
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
        progress: Watch = silent,
        request: str | None = None,
    ) -> Imported:
        """Let Parquet files that lie somewhere else be a stream of this store, without copying a byte: an archive, a
        folder of another store's compacted files, or any Parquet files, of which one may be named itself.

        It is a stream like others; what is appended goes to this store. The files stay where they are, are never written
        to or removed, and are named by an error should they be missing. Of an archive only the metadata is read, and
        its sums are verified whenever a file is first opened. Of other files the footers are read, unless `checksums`
        asks for sums of all their bytes; `key` and `time` name columns. `stream` is the id of one, where compacted files
        hold several. `progress` counts footers. Raises SchemaMismatch where two files' columns disagree, NotFound,
        CorruptArchive, StreamExists, ScopeNotFound; InvalidArgument in an encrypted store, which these files are no
        part of.
        """
        site = self.own.site
        check_request(request)
        if site.runtime.sealer is not None:
            raise InvalidArgument(
                "this store is encrypted, and attached files would stay in the clear: import them instead"
            )
        text, only = _folder_and_file(os.fspath(url))
        with opened(text, site.runtime, create=False) as (source, place):
            if only is None and source.size(METADATA) is not None:
                if key is not None or time is not None or stream is not None:
                    raise InvalidArgument("an archive says itself what its key and time are, and what streams it holds")
                found = read_metadata(source, place, trusted=trusted)
                return self._attach_archive(source, found, as_, request)
            if trusted is not None:
                raise CorruptArchive(place, METADATA, "is missing, so nothing there is signed")
            if as_ is None:
                raise InvalidArgument("say what the stream is to be called, as scope/name")
            name, ident = StreamName.parse(as_), self._new_id()
            wanted = Wanted(name, ident, key, time, _stream_id(stream), only, checksums)
            with Hold(site.catalog, site.runtime, "attach", str(name)) as hold:
                with site.catalog.reading() as txn:
                    need_scope(txn, name.scope)
                called = attachment(hold.begun_at, token(site.runtime.ids))

                def watch(what: str, done: int, total: int) -> None:
                    hold.renew()
                    progress(what, done, total)

                surveyed = survey(source, place, called, wanted, site.runtime.clock.now(), watch)
                asked = {"attached": place, "footers": surveyed.digest, "key": key, "time": time}
                wish = Wish(name, ident, asked, place)
                made = self._adopt(surveyed.stream, wish, surveyed.files, hold, (called, place), request)
        return Imported(((name, made),))

    def _attach_archive(
        self, source: Blobs, found: Found, as_: str | StreamName | None, request: str | None
    ) -> Imported:
        site = self.own.site
        refuse_flaws(found, listing_flaws(source, found.archive))
        done = []
        asked = {"archive": found.digest, "attached": found.place}
        wanted = [
            (stream, Wish(name, self._new_id(), asked, found.place, False, aliases, scope))
            for stream, name, aliases, scope in wishes(found, as_)
        ]
        for number, (stream, wish) in enumerate(wanted):
            others = [] if number else [wish for _, wish in wanted[1:]]
            with Hold(site.catalog, site.runtime, "attach", str(wish.name)) as hold:
                called = attachment(hold.begun_at, token(site.runtime.ids))
                files = {
                    file.name: Lying(attached_key(called, file.name, footer=False), file.size, file.checksum)
                    for file in stream.files
                }
                own = page_of(request, number)
                made = self._adopt(stream, wish, files, hold, (called, found.place), own, others)
                done.append((wish.name, made))
        return Imported(tuple(done))

    def _adopt(
        self,
        stream: ArchivedStream,
        wish: Wish,
        files: Any,
        hold: Hold,
        attached: tuple[str, str],
        request: str | None,
        others: Sequence[Wish] = (),
    ) -> Copied:
        """Make one stream, unless a name that one of `others` is to have is taken."""

        def act(txn: Writing, now: Micros) -> Result:
            hold.verify(txn)
            for each in others:
                made_before(txn, each)
            copied = adopt(txn, stream, wish, now, spans_of=in_new_logs(txn, wish.id, files, hold.begun_at))
            if copied.copy == wish.id:
                txn.put_piece(Checkpointed(ATTACHMENT, attached[0], {"place": attached[1]}))
            return copied.to_json()

        return Copied.from_json(self._asked(f"adopt {sorted(wish.asked.items())} {wish.name}", request, act))


def _stream_id(stream: StreamId | str | None) -> StreamId | None:
    """A stream's id, or its text, 16 hex digits. Raises InvalidArgument."""
    try:
        return StreamId(int(stream, 16)) if isinstance(stream, str) else stream
    except ValueError as exc:
        raise InvalidArgument(f"'{stream}' is no stream's id: these have 16 hex digits") from exc


def _folder_and_file(text: str) -> tuple[str, str | None]:
    """A place, and the one file in it that was named."""
    path, mark, options = text.partition("?")
    if not path.endswith(".parquet") or (not is_remote(text) and Path(path).is_dir()):
        return text, None
    folder, _, name = path.rpartition("/")
    return (folder or ("/" if path.startswith("/") else ".")) + mark + options, name
