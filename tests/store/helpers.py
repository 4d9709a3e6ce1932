"""What tests of the write side share: whole streams read back, and ports that fail when told to."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.blobs.port import Blobs
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.errors import AppendUncertain
from anabranch.model.append import Commit, Verdict
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.testing.faults import Action, Call, Gate
from anabranch.testing.faulty_ports import FaultyBlobs
from tests.postgres_server import drop, fresh_url

SCHEMA = pa.schema([("device", pa.string()), ("at", pa.timestamp("us", tz="UTC")), ("n", pa.int32())])


ANYWHERE = ["memory", "sqlite", "postgres+memory"]


@contextmanager
def store_at(place: str, folder: Path, **options: Any) -> Iterator[Store]:
    """A new store at one of ANYWHERE, with the scope "s" and these options of `connect`; a database goes with it."""
    url = fresh_url() if place == "postgres+memory" else None
    where = url or ("memory://" if place == "memory" else folder / "store")
    with ab.connect(where, blobs="memory://" if url else None, create=True, **options) as store:
        store.scopes.create("s")
        yield store
    if url:
        drop(url)


def events_of(store: Store, stream: str, **options: Any) -> list[ab.Event]:
    with store.reader(stream, **options) as reader:
        return list(reader)


def bodies_of(store: Store, stream: str) -> list[Any]:
    return [event.body for event in events_of(store, stream)]


def by_key(events: Sequence[ab.Event]) -> dict[Any, list[Any]]:
    """The bodies of each key, in reading order."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for event in events:
        found[event.key].append(event.body)
    return dict(found)


def sound(store: Store) -> bool:
    """True if `check` finds nothing; else the findings are shown."""
    findings = list(store.check())
    assert not findings, findings
    return True


class HookedBlobs(FaultyBlobs):
    """A blob store that calls `before_put` first, which may raise."""

    def __init__(self, inner: Blobs) -> None:
        super().__init__(inner, Gate(self))
        self.before_put: Callable[[], None] = lambda: None
        self.puts = 0

    def decide(self, call: Call) -> Action:
        """See `Faults.decide`."""
        if call.name == "blobs.put":
            self.puts += 1
            self.before_put()
        return Action.PASS


class HookedCatalog(SqliteCatalog):
    """The catalog, with hooks around its commit function: `before` may raise, `after` may lose the answer."""

    commits = 0

    def __init__(self, folder: Path | None, runtime: Runtime) -> None:
        super().__init__(folder, runtime)
        self.before: Callable[[Commit], None] = lambda commit: None
        self.after: Callable[[Commit], None] = lambda commit: None

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        self.commits += 1
        self.before(commit)
        verdicts = super().commit(commit)
        self.after(commit)
        return verdicts


class Rig:
    """A store whose ports can be made to fail."""

    def __init__(self, folder: Path | None = None, **settings: Any) -> None:
        self.runtime = Runtime(settings=Settings(**settings))
        self.catalog = HookedCatalog(folder, self.runtime)
        self.blobs = HookedBlobs(MemoryBlobs() if folder is None else LocalBlobs(folder / "blobs", self.runtime))
        self.store = Store(self.catalog, self.blobs, self.runtime)
        self.store.scopes.create("s", exist_ok=True)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()


class LostAnswers:
    """Loses the answers of a catalog's transactions in the thread that says `lose`; or their requests."""

    def __init__(self, catalog: Any) -> None:
        self._writing = catalog.writing
        self._thread = 0
        self._left = 0
        self._landed = True
        catalog.writing = self.writing

    def lose(self, count: int, *, landed: bool) -> None:
        """The next so many transactions of this thread take place or not, and raise AppendUncertain."""
        self._thread, self._left, self._landed = threading.get_ident(), count, landed

    @contextmanager
    def writing(self, on: Any = None) -> Iterator[Any]:
        lost = self._left > 0 and threading.get_ident() == self._thread
        if not lost or self._landed:
            with self._writing(on) as txn:
                yield txn
        if lost:
            self._left -= 1
            raise AppendUncertain("the connection was lost")


class Once:
    """Raises the error the first `times` times it is called."""

    def __init__(self, error: BaseException, times: int = 1) -> None:
        self.error = error
        self.left = times

    def __call__(self, *_: object) -> None:
        if self.left:
            self.left -= 1
            raise self.error
