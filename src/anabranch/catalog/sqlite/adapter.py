"""The SQLite catalog: connections, exclusion between threads and processes, commits and checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import apsw

from anabranch.catalog.port import Reading, Subject, Writing
from anabranch.catalog.sqlite.append import Appending
from anabranch.catalog.sqlite.connection import Translated, check_format, migrate, open_database, was_refused
from anabranch.catalog.sqlite.lock import FairLock
from anabranch.catalog.sqlite.reading import SqliteReading
from anabranch.catalog.sqlite.wal import WriteAheadLog
from anabranch.catalog.sqlite.writing import SqliteWriting
from anabranch.errors import AnabranchError, AppendUncertain, Closed, DiskFull, ReadOnlyStore
from anabranch.model.append import Commit, Verdict
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

FILE = "catalog.db"


class SqliteCatalog:
    """`catalog.port.Catalog` on one SQLite file, or in memory where `folder` is None.

    Any number of processes may open the same folder. Within a process one connection writes, and a pool of them reads;
    in memory there is only one connection, so a thread must not begin a transaction inside another.
    """

    def __init__(
        self, folder: Path | None, runtime: Runtime, *, read_only: bool = False, vfs: str | None = None
    ) -> None:
        self._runtime = runtime
        self._path = ":memory:" if folder is None else str(folder / FILE)
        self._read_only = read_only
        self._vfs = vfs
        self._exclusive = runtime.tasks.lock()
        self._pool_lock = runtime.tasks.lock()
        self._pool: list[apsw.Connection] = []
        self._closed = False
        self._commits = 0
        self._checkpoint: Task | None = None  # the last one
        self._checkpointing = False
        self._fair = None if folder is None or read_only else FairLock(folder, runtime)
        self._database = open_database(self._path, read_only=read_only, vfs=vfs)
        if read_only:
            check_format(self._database, self._path)
        else:
            self._prepare()
        self._wal = None if folder is None or read_only else WriteAheadLog(self._database, self._path)
        self._watch = self._database if folder is None else open_database(self._path, read_only=True, vfs=vfs)
        self._watch_lock = runtime.tasks.lock()

    def _prepare(self) -> None:
        try:
            with self._turn():
                migrate(self._database, self._path)
        except BaseException:
            self._database.close()
            if self._fair is not None:
                self._fair.close()
            raise

    @property
    def in_memory(self) -> bool:
        """True if the catalog lives as long as this object."""
        return self._path == ":memory:"

    # transactions

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """See the port."""
        if self.in_memory:
            with self._exclusive:
                self._alive()
                yield SqliteReading(self._database)
            return
        database = self._borrow()
        try:
            with Translated(self._path):
                try:
                    database.execute("begin")
                    yield SqliteReading(database)
                finally:
                    _end(database)
        finally:
            self._give_back(database)

    @contextmanager
    def writing(self, on: Subject | None = None) -> Iterator[Writing]:
        """See the port. SQLite has one writer at a time, whatever it is on."""
        with self._turn(), Translated(self._path):
            try:
                self._database.execute("begin immediate")
                yield SqliteWriting(self._database)
                self._finish()
            finally:
                _end(self._database)
        self._checkpoint_if_due()

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        """See the port."""
        with self._turn(), Translated(self._path):
            database = self._database
            try:
                database.execute("begin immediate")
                appending = Appending(database, commit.now, commit.units, commit.blobs)
                verdicts = tuple(appending.unit(unit) for unit in commit.units)
                if appending.flush():
                    self._finish()
            finally:
                _end(database)
        self._checkpoint_if_due()
        return verdicts

    def _finish(self) -> None:
        try:
            self._database.execute("commit")
        except apsw.IOError as exc:
            if was_refused(self._database, exc):
                raise DiskFull(f"no space is left for the catalog {self._path}; nothing was changed") from exc
            # The write-ahead log may or may not have reached the disk: a crash now could still bring the commit back.
            raise AppendUncertain(f"the disk failed while the catalog {self._path} was committing: {exc}") from exc
        self._commits += 1
        if self._wal is not None:
            self._wal.make_room()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Exclude the other threads, then the other processes."""
        if self._read_only:
            raise ReadOnlyStore(f"the store at {self._path} was opened for reading only")
        # Counted from here: else of many threads each would wait as long as a process may, one after the other.
        until = None if self._fair is None else self._fair.patience()
        with self._exclusive:
            self._alive()
            if self._fair is None:
                yield
                return
            try:
                self._fair.acquire(until)
                yield
            finally:
                self._fair.release()

    # checkpoints of the write-ahead log

    def _checkpoint_if_due(self) -> None:
        if self._wal is None or self._checkpointing or not self._wal.full:
            return
        self._checkpointing = True
        try:
            self._checkpoint = self._runtime.tasks.spawn("checkpoint", self._run_checkpoint)
        except (
            RuntimeError
        ):  # no thread is to be had, but what was committed stays committed: a later commit asks again
            self._checkpointing = False

    def _run_checkpoint(self) -> None:
        """Move the log's pages into the database: the bulk while others commit, the rest in a turn of its own, after
        which the next commit begins the log anew."""
        try:
            database = self._borrow()
            try:
                with Translated(self._path):
                    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                    with self._turn():
                        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                self._give_back(database)
        except AnabranchError:
            pass  # another process is at it, or the disk is full: a later commit asks again
        finally:
            self._checkpointing = False

    # connections

    def _borrow(self) -> apsw.Connection:
        with self._pool_lock:
            self._alive()
            if self._pool:
                return self._pool.pop()
        return open_database(self._path, read_only=self._read_only, vfs=self._vfs)

    def _give_back(self, database: apsw.Connection) -> None:
        with self._pool_lock:
            if not self._closed:
                self._pool.append(database)
                return
        database.close()

    def token(self) -> int:
        """See the port."""
        if self.in_memory:
            return self._commits
        with self._watch_lock:
            self._alive()
            with Translated(self._path):
                return int(self._watch.pragma("data_version"))

    def _alive(self) -> None:
        if self._closed:
            raise Closed("store")

    def close(self) -> None:
        """See the port."""
        checkpoint = self._checkpoint
        with self._exclusive, self._watch_lock:
            with self._pool_lock:
                if self._closed:
                    return
                self._closed = True
                pool, self._pool = self._pool, []
            with Translated(self._path) if not self.in_memory else nullcontext():
                for database in pool:
                    database.close()
                if self._watch is not self._database:
                    self._watch.close()
                self._database.close()
            if self._fair is not None:
                self._fair.close()
        if checkpoint is not None:
            checkpoint.join()


def _end(database: apsw.Connection) -> None:
    """Leave no transaction behind, wherever it was interrupted."""
    if database.in_transaction:
        database.execute("rollback")
