"""The SQLite catalog: connections, locking between threads and processes, commits and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import apsw

from anabranch import limits
from anabranch.catalog.port import Reading, Subject, Writing
from anabranch.catalog.sqlite.append import AppendBatch
from anabranch.catalog.sqlite.connection import (
    TranslatedErrors,
    check_format,
    inode,
    is_out_of_space,
    migrate,
    open_database,
    translate,
)
from anabranch.catalog.sqlite.known_states import KnownStates
from anabranch.catalog.sqlite.lock import LOCK, FairLock
from anabranch.catalog.sqlite.reading import SqliteReading
from anabranch.catalog.sqlite.subject import SqliteSubjectWriting
from anabranch.catalog.sqlite.wakeup import FileListener
from anabranch.catalog.sqlite.wal import WriteAheadLog
from anabranch.catalog.sqlite.writing import SqliteWriting
from anabranch.errors import AnabranchError, AppendUncertain, Closed, DiskFull, ReadOnlyStore, StoreUnavailable
from anabranch.model.append import Commit, Verdict
from anabranch.runtime.access import access_of
from anabranch.runtime.clock import Clock, MachineClock
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

FILE = "catalog.db"


class SqliteCatalog:
    """`catalog.port.Catalog` on one SQLite file, or in memory if `folder` is None.

    Any number of processes may open the same folder. Within a process one connection writes and a pool of connections
    reads. In memory there is only one connection, so a thread must not begin a transaction inside another.
    """

    def __init__(
        self, folder: Path | None, runtime: Runtime, *, read_only: bool = False, vfs: str | None = None
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.catalog_clock or MachineClock(runtime.clock)
        self._path = ":memory:" if folder is None else str(folder / FILE)
        self._read_only = read_only
        self._vfs = vfs
        self._thread_lock = runtime.tasks.lock()
        self._pool_lock = runtime.tasks.lock()
        self._pool: list[apsw.Connection] = []
        self._closed = False
        self._commits = 0
        self._known = KnownStates()  # to the connection that commits
        self._checkpoint: Task | None = None  # the latest one
        self._checkpointing = False
        self._file_lock = None if folder is None or read_only else FairLock(folder, runtime)
        self._inode: int | None = None  # of the open file; None: not compared
        self._watch_lock = runtime.tasks.lock()
        self._listener: FileListener | None = None
        opened: list[apsw.Connection] = []
        try:
            self._database = self._open(opened)
            self._wal = None if folder is None or read_only else WriteAheadLog(self._database, self._path)
            self._version_watch = self._database
            if folder is not None:
                self._version_watch = open_database(self._path, read_only=True, vfs=vfs)
        except BaseException:
            for database in opened:
                database.close()
            if self._file_lock is not None:
                self._file_lock.close()
            raise

    def _open(self, opened: list[apsw.Connection]) -> apsw.Connection:
        """Open the first connection, which stays open as long as the catalog. A rebuild replaces the file under the same
        lock, so a file can't be opened just before it is replaced and be written to afterwards."""
        if self._read_only:
            opened.append(open_database(self._path, read_only=True, vfs=self._vfs))
            check_format(opened[0], self._path)
            return opened[0]
        with self._exclusively():
            if self._file_lock is not None:
                self._create(Path(self._path))
            opened.append(open_database(self._path, vfs=self._vfs))
            migrate(opened[0], self._path)
            if self._file_lock is not None:
                self._inode = inode(self._path)
        return opened[0]

    def _create(self, file: Path) -> None:
        """Create the file with the store's mode before SQLite would; SQLite gives its write-ahead log the same mode."""
        try:
            if not file.exists():
                access_of(file.parent, shared=self._runtime.settings.shared_files).create(file)
        except OSError:
            return  # SQLite reports it, with one message for all ways in which opening fails

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def in_memory(self) -> bool:
        """True if the catalog exists only as long as this object."""
        return self._path == ":memory:"

    # transactions

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        if self.in_memory:
            with self._thread_lock, TranslatedErrors(self._path):
                self._require_open()
                yield SqliteReading(self._database)
            return
        database = self._borrow()
        try:
            with TranslatedErrors(self._path):
                try:
                    _begin(database, "begin")
                    yield SqliteReading(database)
                finally:
                    _end(database)
        finally:
            self._give_back(database)

    @contextmanager
    def writing(self, subject: Subject | None = None) -> Iterator[Writing]:
        """See the port. SQLite has one writer at a time, whatever its subject. The subject is checked nevertheless."""
        with self._exclusively(), TranslatedErrors(self._path):
            try:
                _begin(self._database, "begin immediate")
                database = self._database
                transaction = SqliteWriting(database) if subject is None else SqliteSubjectWriting(database, subject)
                yield transaction
                transaction.finish()
                self._finish()
            finally:
                _end(self._database)
        self._checkpoint_if_due()

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        with self._exclusively(), TranslatedErrors(self._path):
            database = self._database
            try:
                _begin(database, "begin immediate")
                known = self._known.begin(database.data_version())
                appending = AppendBatch(database, commit.now, commit.units, commit.blobs, known)
                verdicts = tuple(appending.unit(unit) for unit in commit.units)
                if appending.flush():
                    self._finish()
            finally:
                _end(database)
            known.end(database.data_version())
        self._checkpoint_if_due()
        return verdicts

    def _finish(self) -> None:
        try:
            self._database.execute("commit")
        except apsw.IOError as exc:
            if is_out_of_space(self._database, exc):
                raise DiskFull(f"no space is left for the catalog {self._path}; nothing was changed") from exc
            # The write-ahead log may or may not have reached the disk: after a crash the commit may take effect.
            raise AppendUncertain(f"the disk failed while the catalog {self._path} was committing: {exc}") from exc
        self._commits += 1
        if self._wal is not None:
            self._wal.extend()
        if self._file_lock is not None:
            self._file_lock.touch()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Exclude the other threads, then the other processes."""
        if self._read_only:
            raise ReadOnlyStore(f"the store at {self._path} was opened for reading only")
        # The deadline counts from here. Otherwise many threads would each wait for the full time, one after the other.
        deadline = None if self._file_lock is None else self._file_lock.deadline()
        with self._thread_lock:
            self._require_open()
            if self._file_lock is None:
                yield
                return
            try:
                self._file_lock.acquire(deadline)
                if self._inode is not None and inode(self._path) != self._inode:
                    raise StoreUnavailable(
                        f"the catalog {self._path} was deleted or replaced while it was open; nothing was changed. "
                        "Open the store again"
                    )
                yield
            finally:
                self._file_lock.release()

    # checkpoints of the write-ahead log

    def _checkpoint_if_due(self) -> None:
        if self._wal is None or self._checkpointing or not self._wal.checkpoint_due:
            return
        self._checkpointing = True
        try:
            self._checkpoint = self._runtime.tasks.spawn("checkpoint", self._run_checkpoint)
        except RuntimeError:  # no thread can be started; the commit itself succeeded, and a later one tries again
            self._checkpointing = False

    def _run_checkpoint(self) -> None:
        """Move the log's pages into the database: most of them while others commit, the rest under the lock, after
        which the next commit starts at the beginning of the log."""
        try:
            database = self._borrow()
            try:
                with TranslatedErrors(self._path):
                    database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                    with self._exclusively():
                        database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                self._give_back(database)
        except AnabranchError:
            pass  # another process is doing it, or the disk is full: a later commit tries again
        finally:
            self._checkpointing = False

    # connections

    def _borrow(self) -> apsw.Connection:
        with self._pool_lock:
            self._require_open()
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
        if self.in_memory:
            return self._commits
        with self._watch_lock:
            self._require_open()
            with TranslatedErrors(self._path):
                return int(self._version_watch.pragma("data_version"))

    def on_change(self, changed: Callable[[], None]) -> bool:
        if self.in_memory or self._listener is not None:
            return False
        try:
            listener = FileListener(Path(self._path).with_name(LOCK), self._runtime, changed)
        except (OSError, RuntimeError):  # another system, no lock file, no watches or threads left
            return False
        with self._pool_lock:
            if not self._closed and self._listener is None:
                self._listener = listener
                return True
        listener.close()
        return False

    def _require_open(self) -> None:
        if self._closed:
            raise Closed("store")

    def translated(self, error: Exception) -> Exception:
        return translate(error, self._path) if isinstance(error, apsw.Error) else error

    def close(self) -> None:
        checkpoint = self._checkpoint
        if self._listener is not None:
            self._listener.close()
        with self._thread_lock, self._watch_lock:
            with self._pool_lock:
                if self._closed:
                    return
                self._closed = True
                pool, self._pool = self._pool, []
            with TranslatedErrors(self._path) if not self.in_memory else nullcontext():
                for database in pool:
                    database.close()
                if self._version_watch is not self._database:
                    self._version_watch.close()
                self._database.close()
            if self._file_lock is not None:
                self._file_lock.close()
        if checkpoint is not None:
            checkpoint.join(limits.TASK_END_S)


def _begin(database: apsw.Connection, statement: str) -> None:
    if database.in_transaction:  # an asynchronous exception interrupted the end of the last one
        _end(database)
    database.execute(statement)


def _end(database: apsw.Connection) -> None:
    """Roll back if a transaction is still open, wherever it was interrupted."""
    if database.in_transaction:
        database.execute("rollback")
