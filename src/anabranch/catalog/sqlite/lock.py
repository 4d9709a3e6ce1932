"""A fair lock between processes. SQLite's own waiting is unfair: one of 16 contenders got a single commit."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from anabranch.errors import StoreBusy
from anabranch.errors.system import unavailable
from anabranch.runtime.access import access_of
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import Retries, RetryPolicy

# The first process in the queue tries often, since the lock is held for about a millisecond. The others try less and less
# often: their attempts take processor time from the holder, and among many one tries soon enough.
_QUEUED: Final = RetryPolicy(pause_s_min=0.001, pause_s_max=0.004, jitter=0)
_FIRST_IN_QUEUE: Final = RetryPolicy(pause_s_min=0.0001, pause_s_max=0.001, growth=1.1, jitter=0)

_QUEUE: Final = "catalog.queue"
LOCK: Final = "catalog.lock"  # also written to after a commit, which wakes followers
_files: set[int] = set()  # descriptors of all locks of this process


def _close_in_child() -> None:
    """Close the lock files in a forked child: a lock must not outlive its holder, the parent, if that is killed."""
    for file in _files:
        os.close(file)
    _files.clear()


os.register_at_fork(after_in_child=_close_in_child)


class FairLock:
    """Two file locks: the queue, which admits one waiter, and the lock itself, for which only that waiter and the
    holder contend. A process that needs the lock again after releasing it must pass the queue, so none starves.

    For one thread at a time: the adapter guards it with a lock of its own.
    """

    def __init__(self, folder: Path, runtime: Runtime) -> None:
        self._runtime = runtime
        self._folder = folder
        self._files: dict[str, int] = {}  # by name; a file that could not be unlocked is missing until it is reopened
        try:
            for name in (_QUEUE, LOCK):
                self._file(name)
        except BaseException:
            self.close()
            raise

    def deadline(self) -> float:
        """The deadline on the monotonic clock for a wait that begins now: `settings.catalog_lock_s` from now."""
        return self._runtime.clock.monotonic() + self._runtime.settings.catalog_lock_s

    def acquire(self, deadline: float | None = None) -> None:
        """Wait for the lock until the deadline; None means that of a wait that begins now. Raises StoreBusy at the
        deadline, and StoreUnavailable where the system can't lock; then neither lock is held."""
        try:
            self._acquire_both(self.deadline() if deadline is None else deadline)
        except BaseException:  # Ctrl-C too: a process that stops waiting must not keep the queue
            self.release()
            raise
        self._unlock(_QUEUE)

    def _acquire_both(self, deadline: float) -> None:
        for name, policy in ((_QUEUE, _QUEUED), (LOCK, _FIRST_IN_QUEUE)):
            retries: Retries | None = None
            while not self._try(name):
                retries = retries or policy.begin(self._runtime, until=deadline)
                if not retries.again():
                    raise StoreBusy(
                        f"another process has held the store in {self._folder} for over "
                        f"{self._runtime.settings.catalog_lock_s:g} s; is it stopped?"
                    )

    def release(self) -> None:
        """Release the lock to the next waiter. Harmless if it is not held."""
        self._unlock(LOCK)
        self._unlock(_QUEUE)

    def touch(self) -> None:
        """Write to the lock file, for those that watch it. Called by the holder. Never raises: they also poll."""
        with suppress(OSError, KeyError):
            os.pwrite(self._files[LOCK], b"\n", 0)

    def close(self) -> None:
        """Close the lock files."""
        for name in list(self._files):
            self._close(name)

    def _file(self, name: str) -> int:
        """The descriptor of a lock file, opened if needed. Raises StoreUnavailable and its subclasses."""
        file = self._files.get(name)
        if file is None:
            path = self._folder / name
            mode = access_of(self._folder, shared=self._runtime.settings.shared_files).file
            try:
                file = self._files[name] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
            except OSError as exc:
                raise unavailable(exc, f"the store's lock file {path} can't be opened") from exc
            _files.add(file)
        return file

    def _try(self, name: str) -> bool:
        file = self._file(name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as exc:
            raise unavailable(exc, f"the store's lock file {self._folder / name} can't be locked") from exc
        return True

    def _unlock(self, name: str) -> None:
        """Unlock. Never raises: a file that can't be unlocked is closed, which unlocks it too, and opened again when it
        is next needed."""
        file = self._files.get(name)
        if file is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_UN)
        except OSError:
            self._close(name)

    def _close(self, name: str) -> None:
        file = self._files.pop(name)
        _files.discard(file)
        with suppress(OSError):  # the descriptor is closed even so
            os.close(file)
