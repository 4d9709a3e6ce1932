"""A fair lock between processes. SQLite's own waiting starves: of 16 contending processes one got a single commit."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from anabranch.errors import ReadOnlyStore, StoreBusy
from anabranch.runtime.ports import Runtime


class _Pauses(NamedTuple):
    """Between two looks, in seconds: the first, by how much each is longer than the one before, and the longest."""

    first: float
    growth: float
    longest: float


# Who is next in line looks often, since a turn takes about a millisecond. Those behind it look less and less often: their
# looks take the processors from who has the lock, and one of many is there soon enough.
_IN_QUEUE = _Pauses(0.001, 2, 0.004)
_NEXT_IN_LINE = _Pauses(0.0001, 1.1, 0.001)

_files: set[int] = set()


def _let_go() -> None:
    """In a forked child: a lock that its parent holds must not outlive that, if it is killed."""
    for file in _files:
        os.close(file)
    _files.clear()


os.register_at_fork(after_in_child=_let_go)


class FairLock:
    """Two file locks: the queue, which admits one waiter, and the lock itself, for which only that one and the holder
    contend. A releaser that wants it again must pass the queue, so nobody is overtaken for ever.

    For one thread at a time: the adapter has a lock of its own around it.
    """

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        self._runtime = runtime
        self._folder = folder
        try:
            self._queue = os.open(folder / "catalog.queue", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._lock = os.open(folder / "catalog.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            raise ReadOnlyStore(f"the folder {folder} can't be written: {exc.strerror}") from exc
        _files.update((self._queue, self._lock))

    def patience(self) -> float:
        """Until when who begins to wait now may wait, on the monotonic clock: `settings.catalog_lock_s` from now."""
        return self._runtime.clock.monotonic() + self._runtime.settings.catalog_lock_s

    def acquire(self, until: float | None = None) -> None:
        """Wait for the lock as long as `patience` allows, or did when that was asked for. Raises StoreBusy."""
        try:
            self._take(self.patience() if until is None else until)
        except BaseException:  # Ctrl-C too: whoever leaves the queue must not keep it
            self.release()
            raise
        fcntl.flock(self._queue, fcntl.LOCK_UN)

    def _take(self, until: float) -> None:
        for file, pauses in ((self._queue, _IN_QUEUE), (self._lock, _NEXT_IN_LINE)):
            pause = pauses.first
            while not _try(file):
                if self._runtime.clock.monotonic() > until:
                    raise StoreBusy(
                        f"another process has held the store in {self._folder} for over "
                        f"{self._runtime.settings.catalog_lock_s:g} s; is it stopped?"
                    )
                self._runtime.tasks.sleep(pause)
                pause = min(pause * pauses.growth, pauses.longest)

    def release(self) -> None:
        """Let the next one in. Harmless where the lock is not held."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        fcntl.flock(self._queue, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the lock files."""
        for file in (self._queue, self._lock):
            _files.discard(file)
            os.close(file)


def _try(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
