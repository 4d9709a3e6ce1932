"""The embedded store: the facade, and the only place where its parts are put together."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from anabranch import limits
from anabranch.blobs.address import is_remote, parse
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.pools import PooledBlobs
from anabranch.blobs.port import Blobs
from anabranch.blobs.tiers import TieredBlobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.sqlite.adapter import FILE as CATALOG_FILE
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import (
    AlreadyExists,
    AnabranchError,
    Closed,
    CorruptCatalog,
    InvalidArgument,
    KeyMissing,
    MissingExtra,
    ReadOnlyStore,
    StoreNotFound,
)
from anabranch.log import data_keys
from anabranch.log import manifest as manifests
from anabranch.log.appender import Appender
from anabranch.log.backup import BackupReport, backup, fetch_blobs, newest_backup
from anabranch.log.check import Finding, check
from anabranch.log.collect import CollectReport, collect
from anabranch.log.commit import Committer
from anabranch.log.compact import CompactReport, compact
from anabranch.log.lease import Hold
from anabranch.log.maintain import Maintenance
from anabranch.log.manifest import Manifest
from anabranch.log.read import LogReader
from anabranch.log.rebuild import RebuildReport, forget
from anabranch.log.rebuild import rebuild as rebuild_catalog
from anabranch.log.reload import is_empty, reload
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
from anabranch.readers.place import Place, TimeKind, fetch
from anabranch.readers.reader import Reader
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.streams.manager import Streams
from anabranch.streams.publish import Numbered, Publication, publish
from anabranch.streams.stage import Stager
from anabranch.streams.writer import Writer

if TYPE_CHECKING:
    from anabranch.log.keyring import Keyring, Rotation
    from anabranch.runtime.sealing import KeyService

_POSTGRES = ("postgresql://", "postgres://")
_DATABASE_BYTES_MIN = 512  # SQLite takes less for an empty database


@dataclass(frozen=True, slots=True)
class Places:
    """What `connect` takes to open the same store in another process. `url` may hold a password: it is not for people.
    `keys` says where keys are, never what they are; None also for a key service, which is an object of this process."""

    url: str
    blobs: str | None = None
    history: str | None = None
    keys: str | None = None

    @classmethod
    def of(
        cls,
        url: str | os.PathLike[str],
        blobs: str | os.PathLike[str] | None = None,
        history: str | os.PathLike[str] | None = None,
        keys: str | KeyService | None = None,
    ) -> Places:
        """The same whatever a process's working folder is."""
        return cls(
            _lasting(url),
            _lasting(blobs) if blobs else None,
            _lasting(history) if history else None,
            _lasting_keys(keys) if isinstance(keys, str) else None,
        )


def _lasting_keys(place: str) -> str:
    return f"file:{_folder(place)}" if place.startswith("file:") else place


def _lasting(place: str | os.PathLike[str]) -> str:
    text = os.fspath(place)
    return text if "://" in text and not text.startswith("file:") else str(_folder(text))


def connect(
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    keys: str | KeyService | None = None,
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

    `keys` encrypts the events of a new store, and opens one that is encrypted: `file:/path`, `env:NAME` (see
    `anabranch.runtime.keys`), or a `KeyService`. Raises KeyMissing where the store is encrypted under a key that was not
    given, WrongKey where it was another; InvalidArgument where the store holds events in the clear.

    Raises StoreNotFound where there is none and `create` is False, ReadOnlyStore, StoreUnavailable, CorruptCatalog,
    FormatTooNew, InvalidArgument, MissingExtra.
    """
    runtime = _paced(runtime or Runtime(settings=settings or Settings()), blobs)
    service = _service(keys, runtime)  # first, so that keys which can't be had leave nothing behind
    text = os.fspath(url)
    if text.startswith(_POSTGRES):
        if blobs is None:
            raise InvalidArgument("a PostgreSQL catalog holds no blobs: say where they are by blobs=")
        bytes_at = _tiers(blobs, history, runtime, create=create)
        catalog, shown = _postgres(text, runtime, create=create)
        return _placed(_assemble(catalog, bytes_at, runtime, service, url=shown), Places.of(text, blobs, history, keys))
    if text == "memory://":
        bytes_at = _tiers(blobs or text, history, runtime, create=create)
        return _placed(
            _assemble(SqliteCatalog(None, runtime), bytes_at, runtime, service, url=text),
            Places.of(text, blobs, history, keys),
        )
    folder = _folder(text)
    if not create and not (folder / CATALOG_FILE).exists():
        if blobs is None and (folder / "blobs").is_dir():
            _refuse_orphans(LocalBlobs(folder / "blobs", runtime), folder / CATALOG_FILE)
        raise StoreNotFound(str(folder))
    _make(folder)
    bytes_at = _tiers(blobs or folder / "blobs", history, runtime, create=True)
    _refuse_orphans(bytes_at, folder / CATALOG_FILE)
    return _placed(
        _assemble(SqliteCatalog(folder, runtime), bytes_at, runtime, service, url=str(folder)),
        Places.of(text, blobs, history, keys),
    )


def _service(keys: str | KeyService | None, runtime: Runtime) -> KeyService | None:
    if keys is None:
        return None
    try:
        from anabranch.runtime.keys import open_keys
    except ImportError as exc:
        raise MissingExtra("encryption at rest", "encryption") from exc
    return open_keys(keys, runtime.ids) if isinstance(keys, str) else keys


def _assemble(catalog: Catalog, blobs: Blobs, runtime: Runtime, service: KeyService | None, *, url: str) -> Store:
    try:
        keyring = _unlock(catalog, runtime, service)
    except BaseException:
        catalog.close()
        blobs.close()
        raise
    if keyring is None:
        return Store(catalog, blobs, runtime, url=url)
    from anabranch.blobs.envelope import Envelope

    return Store(catalog, blobs, replace(runtime, sealer=Envelope(keyring, runtime.ids)), url=url, keyring=keyring)


def _unlock(catalog: Catalog, runtime: Runtime, service: KeyService | None) -> Keyring | None:
    """The data keys of a store that is encrypted or is to be; None for one in the clear."""
    if service is not None:
        from anabranch.log.keyring import open_keyring

        return open_keyring(catalog, service, runtime)
    with catalog.reading() as snapshot:
        known = snapshot.pieces(data_keys.KIND)
    if known:
        raise KeyMissing(data_keys.newest(map(data_keys.from_piece, known)).master)
    return None


def _placed(store: Store, places: Places) -> Store:
    store.places = places
    return store


def _refuse_orphans(blobs: Blobs, catalog: Path) -> None:
    """Raise CorruptCatalog where there are blobs, but no catalog that could know of them: a new one would take them for
    garbage."""
    if _is_database(catalog):
        return
    orphan = next(iter(blobs.list()), None)
    # Another process may have made both meanwhile, the catalog first.
    if orphan is not None and not _is_database(catalog):
        raise CorruptCatalog(
            f"the catalog {catalog} is damaged or missing, though there are blobs: {orphan.key} … "
            "(anabranch rebuild makes one anew from the last manifest; a restore that was cut off is begun again)"
        )


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


def _paced(runtime: Runtime, place: str | os.PathLike[str] | None) -> Runtime:
    """What the settings leave open of how much may be on its way: enough to hide an object store's latency."""
    settings = runtime.settings
    if place is None or not is_remote(os.fspath(place)):
        return runtime
    in_flight = settings.commits_in_flight_max or limits.REMOTE_COMMITS_IN_FLIGHT_MAX
    pending = settings.pending_bytes_max or limits.REMOTE_PENDING_BYTES_MAX
    return replace(runtime, settings=replace(settings, commits_in_flight_max=in_flight, pending_bytes_max=pending))


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

        return PooledBlobs(ObjectBlobs(parse(text), runtime), runtime)
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


def restore(
    backup: str | os.PathLike[str],
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    progress: Watch = silent,
) -> BackupReport:
    """Make a store of a backup (see `Store.backup`), with a catalog of either kind, whatever kind was backed up. The
    places are `connect`'s. There is a whole store afterwards, or none: what was cut off is begun again and continues.

    Raises NotFound where there is no backup, AlreadyExists where something is at the new place, and what `connect` and
    `anabranch.log.backup.restore` raise.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    source = _blobs(backup, runtime, create=False)
    manifest = newest_backup(source)
    with _place(url, blobs, history, runtime) as (folder, target):
        if folder is not None:
            if _is_database(folder / CATALOG_FILE):
                raise AlreadyExists(f"there is a store in {folder} already; restore to a new place")
            _make(folder)
            report = fetch_blobs(source, manifest, target, progress=progress)
            from anabranch.catalog.sqlite.replace import replacing

            with replacing(folder, runtime) as fresh:
                reload(fresh, source, manifest, runtime, progress=progress)
            return report
        catalog, shown = _postgres(os.fspath(url), runtime, create=True)
        try:
            with catalog.reading() as snapshot:
                if not is_empty(snapshot):
                    raise AlreadyExists(f"there is a store in {shown} already; restore to a new place")
            report = fetch_blobs(source, manifest, target, progress=progress)
            reload(catalog, source, manifest, runtime, progress=progress)
            return report
        finally:
            catalog.close()


def rebuild(
    url: str | os.PathLike[str],
    *,
    blobs: str | os.PathLike[str] | None = None,
    history: str | os.PathLike[str] | None = None,
    force: bool = False,
    settings: Settings | None = None,
    runtime: Runtime | None = None,
    progress: Watch = silent,
) -> RebuildReport:
    """Make the catalog of a store anew from the newest sound manifest among its blobs; see `anabranch.log.rebuild`. End
    all processes that use the store first. A SQLite catalog that is replaced stays beside the new one, under another name.

    Raises AlreadyExists where the catalog is sound, unless `force` is given; NotFound where there is no manifest,
    StoreBusy, and what `connect` raises.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    with _place(url, blobs, history, runtime) as (folder, target):
        if folder is not None:
            from anabranch.catalog.sqlite.replace import is_lost, replacing

            if not force and not is_lost(folder, runtime):
                raise AlreadyExists(f"the catalog in {folder} is sound; --force makes it anew all the same")
            with replacing(folder, runtime) as fresh:
                return rebuild_catalog(fresh, target, runtime, progress=progress)
        catalog, shown = _postgres(os.fspath(url), runtime, create=True)
        try:
            with catalog.reading() as snapshot:
                used = not is_empty(snapshot)
                if used and not force and not snapshot.verify_database():
                    raise AlreadyExists(f"the catalog {shown} is sound; --force makes it anew all the same")
            return rebuild_catalog(catalog, target, runtime, wipe=used, progress=progress)
        finally:
            catalog.close()


@contextmanager
def _place(
    url: str | os.PathLike[str],
    blobs: str | os.PathLike[str] | None,
    history: str | os.PathLike[str] | None,
    runtime: Runtime,
) -> Iterator[tuple[Path | None, Blobs]]:
    """Where a catalog is to be made: its folder, or None for PostgreSQL; and the blobs that go with it."""
    text = os.fspath(url)
    folder = None if text.startswith(_POSTGRES) else _folder(text)
    if blobs is None:
        if folder is None:
            raise InvalidArgument("a PostgreSQL catalog holds no blobs: say where they are by blobs=")
        blobs = folder / "blobs"
    opened = _tiers(blobs, history, runtime, create=True)
    try:
        yield folder, opened
    finally:
        opened.close()


class Store:
    """Streams in a catalog and blobs. Thread-safe. Close it, or use it as a context manager; leaving the interpreter
    closes it too. `places` is how it was opened, where it was by `connect`."""

    places: Places | None = None

    def __init__(
        self, catalog: Catalog, blobs: Blobs, runtime: Runtime, *, url: str = "", keyring: Keyring | None = None
    ) -> None:
        self.url = url
        self._keyring = keyring
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
        target = _blobs(place, self.runtime, create=True)
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
