"""The embedded store: the facade, and the only place where its parts are put together."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import AnabranchError, Closed, InvalidArgument, ReadOnlyStore
from anabranch.log.appender import Appender
from anabranch.log.commit import Committer
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamView
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.streams.manager import Streams
from anabranch.streams.writer import Writer


def connect(
    url: str | os.PathLike[str], *, settings: Settings | None = None, runtime: Runtime | None = None
) -> Store:
    """Open a store, creating it where there is none.

    `url` is a folder (`./river`, `file:///data/river`) that any number of processes may share, or `memory://` for a
    store that lives as long as the object. Raises ReadOnlyStore, CorruptCatalog, FormatTooNew, InvalidArgument.
    """
    runtime = runtime or Runtime(settings=settings or Settings())
    text = os.fspath(url)
    if text == "memory://":
        return Store(SqliteCatalog(None, runtime), MemoryBlobs(), runtime, url=text)
    folder = _folder(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ReadOnlyStore(f"the folder {folder} can't be made: {exc.strerror}") from exc
    return Store(SqliteCatalog(folder, runtime), LocalBlobs(folder / "blobs", runtime), runtime, url=str(folder))


def _folder(text: str) -> Path:
    parts = urlsplit(text)
    if parts.scheme in ("", "file"):
        return Path(parts.path if parts.scheme else text).expanduser().absolute()
    raise InvalidArgument(f"'{text}' is no store: give a folder, a file:// URL or memory://")


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
        self._open: dict[Writer, None] = {}  # no set: its order would differ from run to run
        self._closed = False
        self.streams = Streams(catalog, runtime, cut_at=self._cut_at, changed=self._tail.notify)
        self._at_exit = _close_at_exit(self)

    def writer(self, stream: str | StreamName, *, id: str | None = None, fence: int | None = None) -> Writer:
        """A writer to a stream; see `Writer`. Raises StreamNotFound, StreamSealed."""
        self._alive()
        info = self.streams.get(stream)
        writer = Writer(
            self._appender, self.catalog, self.runtime, info.id, id=id, fence=fence, on_close=self._forget
        )
        self._open[writer] = None
        return writer

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

    def _forget(self, writer: Writer) -> None:
        self._open.pop(writer, None)

    def _alive(self) -> None:
        if self._closed:
            raise Closed("store")

    def _cut_at(self, view: StreamView, time: Micros, by_event_time: bool) -> StreamCut:
        raise NotImplementedError


def _close_at_exit(store: Store) -> Callable[[], None]:
    """Have the interpreter close the store on its way out, without keeping it alive until then."""
    alive = weakref.ref(store)

    def close() -> None:
        if (found := alive()) is not None:
            found.close()

    atexit.register(close)
    return close
