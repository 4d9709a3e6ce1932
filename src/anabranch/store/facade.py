"""The embedded store: one object for all that can be done with it."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from anabranch import __version__, limits
from anabranch.blobs.attached import ATTACHMENT, AttachedBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.core.byte_stream import refuse_rows
from anabranch.core.scaling import Pace
from anabranch.errors import (
    AnabranchError,
    Closed,
    Forked,
    InvalidArgument,
)
from anabranch.log import manifest as manifests
from anabranch.log.appender import Appender
from anabranch.log.backup import BackupReport, backup
from anabranch.log.check import Finding, check
from anabranch.log.collect import CollectReport, collect
from anabranch.log.commit import Committer
from anabranch.log.compact import CompactReport, compact
from anabranch.log.lease import Hold
from anabranch.log.maintain import Maintenance
from anabranch.log.manifest import Manifest
from anabranch.log.read import LogReader
from anabranch.log.rebuild import forget
from anabranch.log.repair import Mended, repair
from anabranch.log.seek import cut_at
from anabranch.log.tail import Tail
from anabranch.log.watch import Watch, silent
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.event import Event
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamView
from anabranch.readers.history.cache import RangeCache
from anabranch.readers.place import Place, TimeKind, fetch
from anabranch.readers.reader import Reader
from anabranch.readers.watermarks import Watermarks
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.store.archives import opened
from anabranch.store.byte_streams import ByteStreams
from anabranch.store.history import History
from anabranch.store.notifying import Notifying, make_journal
from anabranch.store.places import Places, open_blobs
from anabranch.store.sharing import Sharing
from anabranch.store.streams import StoreStreams
from anabranch.store.timing import Timing
from anabranch.store.transacting import Transacting
from anabranch.streams.jobs.manager import Jobs
from anabranch.streams.jobs.site import Site
from anabranch.streams.publish import Numbered, Publication, publish
from anabranch.streams.requests import check_request
from anabranch.streams.rescale import RescaleReport, rescale
from anabranch.streams.retain import RetainReport, retain, retain_if_due
from anabranch.streams.stage import Stager
from anabranch.streams.transaction.sweep import sweep_transactions
from anabranch.streams.writer import Writer

if TYPE_CHECKING:
    from anabranch.log.keyring import Keyring, Rotation


class Closing(Protocol):
    """What a store closes with itself."""

    def close(self) -> None:
        """End it. A second close is harmless."""
        ...


class Store(Sharing, Transacting, Notifying, Timing, ByteStreams):
    """Streams in a catalog and blobs. Thread-safe. Close it, or use it as a context manager; leaving the interpreter
    closes it too. `places` is how it was opened, where it was by `connect`."""

    places: Places | None = None

    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, *, url: str = "", keyring: Keyring | None = None
    ) -> None:
        self.url = url
        self._keyring = keyring
        self.catalog = catalog
        blobs = AttachedBlobs(blobs, runtime.tasks, locate=self._attached, open_place=self._open_place)
        self.blobs: Blobs = blobs
        self.runtime = runtime
        self._tail = Tail(catalog, runtime)
        self._appender = Appender(Committer(catalog, blobs, runtime), runtime, committed=self._tail.notify)
        self._logs = LogReader(catalog, blobs, runtime)
        self._lock = runtime.tasks.lock()
        self._open: dict[Closing, None] = {}  # no set: its order would differ from run to run
        self._closed = False
        self._ending = False  # somebody closes it, or has closed it
        self.streams = StoreStreams(catalog, runtime, cut_at=self._cut_at, changed=self._tail.notify)
        self.streams.own = self
        self._journal = make_journal(self)
        self._watermarks: dict[StreamId, Watermarks] = {}
        self.ranges = RangeCache(runtime.tasks, runtime.settings.history_cache_bytes_max)
        self._sources: list[Store] = []  # that were opened for jobs which were resumed
        self.jobs = Jobs(self.site, open_site=self._open_source, changed=self._tail.notify)
        self._maintenance = Maintenance(catalog, blobs, runtime, sweep=self._sweep)
        self._maintenance.start()
        self._scaling = Periodic(runtime, "scaling", runtime.settings.scaling_s, self.rescale)
        self._scaling.start()
        self._at_exit = _close_at_exit(self)

    def _attached(self, attachment: str) -> str | None:
        """Where the files of an attachment lie; None where nobody knows."""
        with self.catalog.reading() as txn:
            piece = txn.piece(ATTACHMENT, attachment)
        return None if piece is None else str(piece.value["place"])

    def _open_place(self, place: str) -> Blobs:
        return open_blobs(place, self.runtime, create=False)

    @property
    def site(self) -> Site:
        """The parts of this store, as its jobs and those of others see them."""
        places = self.places
        said = {} if places is None else {"blobs": places.blobs, "history": places.history, "keys": places.keys}
        told = {name: value for name, value in said.items() if value is not None}
        open_place = partial(opened, runtime=self.runtime)
        return Site(
            self.catalog, self.blobs, self.runtime, {"url": self.url, **told}, open_place, f"anabranch {__version__}"
        )

    # writing and reading

    def writer(
        self,
        stream: str | StreamName,
        *,
        writer_id: str | None = None,
        fence: int | None = None,
        note_time_s: float | None = None,
    ) -> Writer:
        """A writer to a stream; see `Writer`. With `note_time_s` it notes the clock's time every so many seconds by itself,
        for events whose time is when they are written. Raises StreamNotFound, StreamSealed, InvalidArgument for a stream of
        bytes."""
        self._alive()
        info = self.streams.get(stream)
        refuse_rows(info)
        return self._writer(info.id, writer_id=writer_id, fence=fence, note_time_s=note_time_s)

    def _writer(
        self,
        stream: StreamId,
        *,
        writer_id: str | None = None,
        fence: int | None = None,
        note_time_s: float | None = None,
    ) -> Writer:
        """The same, also to a stream of bytes."""
        writer = Writer(
            self._appender,
            self.catalog,
            self.runtime,
            stream,
            writer_id=writer_id,
            fence=fence,
            on_close=self._forget,
            note=self._note_time,
            note_time_s=note_time_s,
        )
        self._keep(writer)
        return writer

    def reader(
        self,
        stream: str | StreamName,
        *,
        start: Place = HEAD,
        end: Place | None = None,
        follow: bool = False,
        columns: Sequence[str] | None = None,
        between: tuple[datetime | int | str, datetime | int | str] | None = None,
        by: TimeKind = "append",
        batch_rows: int = limits.READ_ROWS_MAX,
    ) -> Reader:
        """A reader of a stream; see `Reader` for what the arguments mean and raise."""
        self._alive()
        self.freshen(stream)
        ident = self.streams.get(stream).id
        reader = Reader(
            self.catalog,
            self._logs,
            self._tail,
            self.runtime,
            ident,
            start=start,
            end=end,
            follow=follow,
            columns=columns,
            between=between,
            by=by,
            batch_rows=batch_rows,
            on_close=self._forget,
            window=lambda position: self.time_window(ident, position),
        )
        self._keep(reader)
        return reader

    def fetch(self, pointer: EventPointer | str) -> Event:
        """The event at a pointer. Raises InvalidPointer, StreamNotFound, EventNotFound, Truncated."""
        self._alive()
        where = pointer if isinstance(pointer, EventPointer) else EventPointer.parse(pointer)
        return fetch(self.catalog, self._logs, self.streams.view(where.stream), where)

    def history(self, stream: str | StreamName) -> History:
        """What the stream holds, to be read in parts and in parallel; see `History`. Raises StreamNotFound."""
        self._alive()
        self.freshen(stream)
        return History(self, stream)

    # staging: for jobs whose output counts as a whole or not at all

    def hold(self, kind: str, holder: str, *, first_us: int | None = None) -> Hold:
        """A lease, to be entered before anything is staged and kept until it is published; see `Hold`."""
        self._alive()
        return Hold(self.catalog, self.runtime, kind, holder, first_us=first_us)

    def stager(self, stream: str | StreamName | StreamId) -> Stager:
        """Stages events for a stream; see `Stager`. Raises StreamNotFound, InvalidArgument for a stream of bytes."""
        self._alive()
        view = self.streams.view(stream)
        refuse_rows(view.info)
        ranges = tuple(segment.range for segment in view.current)
        return Stager(self.blobs, self.runtime, view.info.schema, view.info.schema_version, ranges)

    def publish(self, publications: Sequence[Publication], *, request: str | Numbered) -> bool:
        """Make staged events visible, all at once and only once; see `anabranch.streams.publish`."""
        self._alive()
        if not isinstance(request, Numbered):
            check_request(request)
        done = publish(self.catalog, self.blobs, self.runtime, publications, request=request)
        self._tail.notify()
        return done

    # upkeep

    def compact(
        self, stream: str | StreamName | None = None, *, force: bool = False, progress: Watch | None = None
    ) -> CompactReport:
        """Turn fresh blobs into Parquet; see `anabranch.log.compact`. `force` takes also what is hardly worth it."""
        self._alive()
        ident = None if stream is None else self.streams.get(stream).id
        return compact(self.catalog, self.blobs, self.runtime, stream=ident, force=force, progress=progress)

    def collect(self, *, horizon_us: int | None = None, progress: Watch | None = None) -> CollectReport:
        """Remove ephemeral streams that nobody holds any more, and what nothing views; see `anabranch.log.collect`."""
        self._alive()
        swept = self.streams.sweep()
        self.streams.sweep_orphans()
        sweep_transactions(self.catalog, self.runtime)
        self._note_changes()
        report = collect(self.catalog, self.blobs, self.runtime, horizon_us=horizon_us, progress=progress)
        report.streams = swept
        return report

    def rescale(self, *, pace: Pace | None = None) -> RescaleReport:
        """Sample the streams that are scaled by load, and scale them by a step where that is due. To be called again and
        again, unless `Settings.scaling_s` has it done in the background; see `anabranch.streams.rescale`."""
        self._alive()
        report = rescale(self.catalog, self.runtime, pace=pace)
        if report.scaled:
            self._tail.notify()
        return report

    def retain(self, stream: str | StreamName | None = None, *, progress: Watch = silent) -> RetainReport:
        """Truncate what the retention policy of one stream, or of all, lets go now; see `Streams.retention`."""
        self._alive()
        ident = None if stream is None else self.streams.get(stream).id
        report = retain(self.catalog, self.runtime, self._cut_at, stream=ident, progress=progress)
        self._tail.notify()
        return report

    def check(
        self, stream: str | StreamName | None = None, *, deep: bool = True, progress: Watch | None = None
    ) -> Iterator[Finding]:
        """What is wrong with the store, or one stream of it; nothing for a sound one. See `anabranch.log.check`."""
        self._alive()
        ident = None if stream is None else self.streams.get(stream).id
        now = self.runtime.clock.now()
        return check(
            self.catalog, self.blobs, stream=ident, deep=deep, now=now, progress=progress, sealer=self.runtime.sealer
        )

    def rotate_keys(self) -> Rotation:
        """Wrap what encrypts this store with the current master key of the keys it was opened with, and seal new bytes
        with a new data key; see `Keyring.rotate`. Raises InvalidArgument for a store that is not encrypted."""
        self._alive()
        if self._keyring is None:
            raise InvalidArgument("this store is not encrypted, so it has no keys to rotate")
        return self._keyring.rotate()

    # recovery

    def repair(
        self, stream: str | StreamName | None = None, *, dry_run: bool = False, progress: Watch = silent
    ) -> Iterator[Mended]:
        """Put right what `check` finds where that is safe, as it is iterated over; see `anabranch.log.repair`."""
        self._alive()
        ident = None if stream is None else self.streams.get(stream).id
        now = self.runtime.clock.now()
        return repair(self.catalog, stream=ident, dry_run=dry_run, now=now, progress=progress)

    def backup(self, place: str | os.PathLike[str], *, progress: Watch = silent) -> BackupReport:
        """Copy the catalog and the blobs it needs to a folder or an object store; see `anabranch.log.backup`."""
        self._alive()
        target = open_blobs(place, self.runtime, create=True)
        try:
            return backup(self.catalog, self.blobs, target, self.runtime, progress=progress)
        finally:
            target.close()

    def export_manifest(self, *, progress: Watch = silent) -> Manifest:
        """Copy the catalog among the store's blobs, so that it can be rebuilt; see `anabranch.log.manifest`."""
        self._alive()
        return manifests.export(self.catalog, self.blobs, self.runtime, progress=progress)

    def forget_newer(self) -> bool:
        """Let the collector have the blobs that a rebuild has reported; False where there was none."""
        self._alive()
        return forget(self.catalog)

    # ending

    def close(self) -> None:
        """Commit what was accepted, end background work, release files. A second call is harmless; so is one in a forked
        child, which closes nothing.

        Raises the first refusal of an accepted event that nobody has been told of.
        """
        try:
            with self._lock:
                if self._ending:
                    return
                self._closed = self._ending = True
            failures = self._end()
        except Forked:  # all that is open is the parent's
            return
        except BaseException:  # Ctrl-C: a second call, or the interpreter's exit, does what is left
            self._ending = False
            raise
        atexit.unregister(self._at_exit)
        if failures:
            raise failures[0]

    def _end(self) -> list[AnabranchError]:
        failures: list[AnabranchError] = []
        for each in list(self._open):
            try:
                each.close()
            except AnabranchError as exc:
                failures.append(exc)
        self.jobs.close()
        for source in self._sources:
            source.close()
        self._maintenance.close()
        self._scaling.close()
        self.streams.close()
        self._appender.close()
        self._tail.close()
        self.catalog.close()
        self.blobs.close()
        return failures

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except AnabranchError:
            if error is None:
                raise

    def _keep(self, each: Closing) -> None:
        with self._lock:
            if not self._closed:
                self._open[each] = None
                return
        each.close()  # the store was closed while this was being opened
        raise Closed("store")

    def _forget(self, each: Closing) -> None:
        self._open.pop(each, None)

    def _alive(self) -> None:
        if self._closed:
            raise Closed("store")

    def _sweep(self) -> None:
        """In the background: what has run out goes."""
        self.streams.sweep()
        self.streams.sweep_orphans()
        sweep_transactions(self.catalog, self.runtime)
        self._note_changes()
        retain_if_due(self.catalog, self.runtime, self._cut_at)

    def _open_source(self, place: Mapping[str, str]) -> Store:
        """The store that a resumed job reads, closed with this one."""
        from anabranch.store.opening import connect

        source = connect(
            place["url"],
            blobs=place.get("blobs"),
            history=place.get("history"),
            keys=place.get("keys"),
            create=False,
        )
        with self._lock:
            self._sources.append(source)
        return source

    def _cut_at(self, view: StreamView, time: Micros, by_event_time: bool) -> StreamCut:
        return cut_at(self.catalog, self._logs, view, time, by_event_time=by_event_time)


def _close_at_exit(store: Store) -> Callable[[], None]:
    """Have the interpreter close the store on its way out, without keeping it alive until then."""
    alive = weakref.ref(store)

    def close() -> None:
        if (found := alive()) is not None:
            found.close()

    atexit.register(close)
    return close
