"""The embedded store: the facade, and the only place where its parts are put together."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from anabranch import limits
from anabranch.blobs.address import is_remote, parse
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.blobs.tiers import TieredBlobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.sqlite.adapter import FILE as CATALOG_FILE
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import (
    AnabranchError,
    Closed,
    CorruptCatalog,
    InvalidArgument,
    MissingExtra,
    ReadOnlyStore,
    StoreNotFound,
)
from anabranch.log.appender import Appender
from anabranch.log.check import Finding, check
from anabranch.log.collect import CollectReport, collect
from anabranch.log.commit import Committer
from anabranch.log.compact import CompactReport, compact
from anabranch.log.lease import Hold
from anabranch.log.maintain import Maintenance
from anabranch.log.read import LogReader
from anabranch.log.seek import cut_at
from anabranch.log.tail import Tail
from anabranch.log.watch import Watch
from anabranch.model.cut import HEAD, StreamCut
from anabranch.model.event import Event
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.pointer import EventPointer
from anabranch.model.stream import StreamView
from anabranch.readers.place import Place, TimeKind, fetch
from anabranch.readers.reader import Reader
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.streams.manager import Streams
from anabranch.streams.publish import Numbered, Publication, publish
from anabranch.streams.stage import Stager
from anabranch.streams.writer import Writer

_POSTGRES = ("postgresql://", "postgres://")
_DATABASE_BYTES_MIN = 512  # SQLite takes less for an empty database


def connect(
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    create: bool = True,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
) -> Store:
    """Open a store, creating it where there is none.

    `url` says where the catalog is: a folder (`./river`, `file:///data/river`) that any number of processes may share,
    `postgresql://user@host/database` with any option of libpq (`?sslmode=verify-full`) and `schema` (default
    `anabranch`), or `memory://` for a store that lives as long as the object. `blobs` says where the bytes are: a folder,
    `memory://`, or an object store (`s3://bucket/prefix`, `az://…`, `gs://…`; `anabranch.blobs.address` tells their
    options); a PostgreSQL catalog needs it, the others have a place of their own. `history` puts compacted files
    somewhere else, say `blobs` on a local disk and `history` in a bucket. A store is always opened with the same places.

    Raises StoreNotFound where there is none and `create` is False, ReadOnlyStore, StoreUnavailable, CorruptCatalog,
    FormatTooNew, InvalidArgument, MissingExtra.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    text = os.fspath(url)
    if text.startswith(_POSTGRES):
        if blobs is None:
            raise InvalidArgument("a PostgreSQL catalog holds no blobs: say where they are by blobs=")
        bytes_at = _tiers(blobs, history, runtime, create=create)
        catalog, shown = _postgres(text, runtime, create=create)
        return Store(catalog, bytes_at, runtime, url=shown)
    if text == "memory://":
        bytes_at = _tiers(blobs or text, history, runtime, create=create)
        return Store(SqliteCatalog(None, runtime), bytes_at, runtime, url=text)
    folder = _folder(text)
    if not create and not (folder / CATALOG_FILE).exists():
        raise StoreNotFound(str(folder))
    _make(folder)
    bytes_at = _tiers(blobs or folder / "blobs", history, runtime, create=True)
    _refuse_orphans(bytes_at, folder / CATALOG_FILE)
    return Store(SqliteCatalog(folder, runtime), bytes_at, runtime, url=str(folder))


def _refuse_orphans(blobs: Blobs, catalog: Path) -> None:
    """Raise CorruptCatalog where there are blobs, but no catalog that could know of them: a new one would take them for
    garbage."""
    if _is_database(catalog):
        return
    orphan = next(iter(blobs.list()), None)
    # Another process may have made both meanwhile, the catalog first.
    if orphan is not None and not _is_database(catalog):
        raise CorruptCatalog(f"the catalog {catalog} is damaged or missing, though there are blobs: {orphan.key} …")


def _is_database(file: Path) -> bool:
    return file.exists() and file.stat().st_size >= _DATABASE_BYTES_MIN


def _postgres(url: str, runtime: Runtime, *, create: bool) -> tuple[Catalog, str]:
    """The catalog, and where it is without a password."""
    try:
        from anabranch.catalog.postgres.adapter import PostgresCatalog
    except ImportError as exc:
        raise MissingExtra("a catalog on PostgreSQL", "postgres") from exc
    catalog = PostgresCatalog(url, runtime, create=create)
    return catalog, catalog.shown


def _tiers(
    place: str | os.PathLike[str], history: str | os.PathLike[str] | None, runtime: Runtime, *, create: bool
) -> Blobs:
    fresh = _blobs(place, runtime, create=create)
    return fresh if history is None else TieredBlobs(fresh, _blobs(history, runtime, create=create))


def _blobs(place: str | os.PathLike[str], runtime: Runtime, *, create: bool) -> Blobs:
    text = os.fspath(place)
    if text == "memory://":
        return MemoryBlobs()
    if is_remote(text):
        from anabranch.blobs.objects import ObjectBlobs  # takes a while to load

        return ObjectBlobs(parse(text), runtime)
    folder = _folder(text)
    if not create and not folder.exists():
        raise StoreNotFound(str(folder))
    _make(folder)
    return LocalBlobs(folder, runtime)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ReadOnlyStore(f"the folder {folder} can't be made: {exc.strerror}") from exc


def _folder(text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme in ("", "file"):
        return Path(parts.path if parts.scheme else text).expanduser().absolute()
    raise InvalidArgument(f"'{text}' is no store: give a folder, a file:// or postgresql:// URL, or memory://")


class Store:
    """Streams in a catalog and blobs. Thread-safe. Close it, or use it as a context manager; leaving the interpreter
    closes it too."""

    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime, *, url: str = "") -> None:
        self.url = url
        self.catalog = catalog
        self.blobs = blobs
        self.runtime = runtime
        self._tail = Tail(catalog, runtime)
        self._appender = Appender(Committer(catalog, blobs, runtime), runtime, committed=self._tail.notify)
        self._logs = LogReader(catalog, blobs, runtime)
        self._lock = runtime.tasks.lock()
        self._open: dict[Writer | Reader, None] = {}  # no set: its order would differ from run to run
        self._closed = False
        self.streams = Streams(catalog, runtime, cut_at=self._cut_at, changed=self._tail.notify)
        self._maintenance = Maintenance(catalog, blobs, runtime)
        self._maintenance.start()
        self._at_exit = _close_at_exit(self)

    # writing and reading

    def writer(self, stream: str | StreamName, *, writer_id: str | None = None, fence: int | None = None) -> Writer:
        """A writer to a stream; see `Writer`. Raises StreamNotFound, StreamSealed."""
        self._alive()
        info = self.streams.get(stream)
        writer = Writer(
            self._appender, self.catalog, self.runtime, info.id, writer_id=writer_id, fence=fence, on_close=self._forget
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
        reader = Reader(
            self.catalog,
            self._logs,
            self._tail,
            self.runtime,
            self.streams.get(stream).id,
            start=start,
            end=end,
            follow=follow,
            columns=columns,
            between=between,
            by=by,
            batch_rows=batch_rows,
            on_close=self._forget,
        )
        self._keep(reader)
        return reader

    def fetch(self, pointer: EventPointer | str) -> Event:
        """The event at a pointer. Raises InvalidPointer, StreamNotFound, EventNotFound, Truncated."""
        self._alive()
        where = pointer if isinstance(pointer, EventPointer) else EventPointer.parse(pointer)
        return fetch(self.catalog, self._logs, self.streams.view(where.stream), where)

    # staging: for jobs whose output counts as a whole or not at all

    def hold(self, kind: str, holder: str, *, first_us: int = limits.LEASE_US) -> Hold:
        """A lease, to be entered before anything is staged and kept until it is published; see `Hold`."""
        self._alive()
        return Hold(self.catalog, self.runtime, kind, holder, first_us=first_us)

    def stager(self, stream: str | StreamName | StreamId) -> Stager:
        """Stages events for a stream; see `Stager`. Raises StreamNotFound."""
        self._alive()
        view = self.streams.view(stream)
        ranges = tuple(segment.range for segment in view.current)
        return Stager(self.blobs, self.runtime, view.info.schema, view.info.schema_version, ranges)

    def publish(self, publications: Sequence[Publication], *, request: str | Numbered) -> bool:
        """Make staged events visible, all at once and only once; see `anabranch.streams.publish`."""
        self._alive()
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
        """Remove what nothing views any more; see `anabranch.log.collect`."""
        self._alive()
        return collect(self.catalog, self.blobs, self.runtime, horizon_us=horizon_us, progress=progress)

    def check(
        self, stream: str | StreamName | None = None, *, deep: bool = True, progress: Watch | None = None
    ) -> Iterator[Finding]:
        """What is wrong with the store, or one stream of it; nothing for a sound one. See `anabranch.log.check`."""
        self._alive()
        ident = None if stream is None else self.streams.get(stream).id
        now = self.runtime.clock.now()
        return check(self.catalog, self.blobs, stream=ident, deep=deep, now=now, progress=progress)

    # ending

    def close(self) -> None:
        """Commit what was accepted, end background work, release files. A second call is harmless.

        Raises the first refusal of an accepted event that nobody has been told of.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self._at_exit)
        failures: list[AnabranchError] = []
        for each in list(self._open):
            try:
                each.close()
            except AnabranchError as exc:
                failures.append(exc)
        self._maintenance.close()
        self._appender.close()
        self._tail.close()
        self.catalog.close()
        self.blobs.close()
        if failures:
            raise failures[0]

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

    def _keep(self, each: Writer | Reader) -> None:
        with self._lock:
            if not self._closed:
                self._open[each] = None
                return
        each.close()  # the store was closed while this was being opened
        raise Closed("store")

    def _forget(self, each: Writer | Reader) -> None:
        self._open.pop(each, None)

    def _alive(self) -> None:
        if self._closed:
            raise Closed("store")

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
