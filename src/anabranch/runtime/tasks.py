"""The tasks port: the only way to start concurrent work, to lock and to wait.

A port method of the catalog or blobs may be a switching point in the simulation, so a lock that is held across one must
come from this module too: a plain `threading.Lock` would stop the simulation.

Everything in a store takes these locks. In a forked child the locks raise Forked, because the threads that hold them,
or that would wake a waiting caller, don't exist there. This costs nothing if the process never forks.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - pyarrow imports it on first use; at the interpreter's exit that fails
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, NoReturn, Protocol

from anabranch import limits
from anabranch.errors import Forked

_WAIT_S_MAX: Final = threading.TIMEOUT_MAX  # 292 years; `threading` refuses more
_SLEEP_S_MAX: Final = 1e9  # 31 years; the system refuses times beyond what its clock can hold


class Lock(Protocol):
    """Mutual exclusion, not re-entrant; a context manager."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock; without `blocking`, return False at once if it is taken."""

    def release(self) -> None:
        """Release the lock."""

    def locked(self) -> bool:
        """True if the lock is held."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Condition(Protocol):
    """A lock with waiting, like `threading.Condition`. Wake-ups may be spurious: wait in a loop."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Release the lock, wait at most `timeout` seconds (without it, at most `limits.CONDITION_WAIT_S`), and take it
        again. Returns False after `timeout`."""

    def notify_all(self) -> None:
        """Wake all waiters."""


class Task(Protocol):
    """A task that was spawned."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the task has ended. Returns False after `timeout` seconds, and at once if called by the task
        itself."""


class Tasks(Protocol):
    """Starts concurrent work, and creates locks and conditions."""

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """Start `work` concurrently with the caller. It must end on its own when its owner closes."""

    def lock(self) -> Lock:
        """A new lock."""

    def condition(self) -> Condition:
        """A new condition with its own lock."""

    def sleep(self, seconds: float) -> None:
        """Pause the caller for that long; other tasks run."""


class _ThreadTask:
    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def join(self, timeout: float | None = None) -> bool:
        if self._thread is threading.current_thread():
            return False  # a callback that closes its own caller
        self._thread.join(None if timeout is None else min(timeout, _WAIT_S_MAX))
        return not self._thread.is_alive()


class _ThreadLock:
    """`threading.Lock`, which can't be subclassed: its methods are copied, so that calls don't go through Python
    code."""

    __slots__ = ("__enter__", "__exit__", "acquire", "locked", "release")

    def __init__(self) -> None:
        lock = threading.Lock()
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked
        self.__enter__, self.__exit__ = lock.__enter__, lock.__exit__


class _ThreadCondition(type(threading.RLock())):  # type: ignore[misc]
    """A condition whose lock is acquired and released by C code alone. So Ctrl-C, which may interrupt Python code
    between any two steps, can't leave the lock held. `threading.Condition` enters and leaves in Python."""

    def __init__(self) -> None:
        self._waiting = threading.Condition(self)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            if timeout is None:
                # The notifying thread may have been interrupted before it notified: the caller re-checks in any case.
                return self._waiting.wait(limits.CONDITION_WAIT_S) or True
            return self._waiting.wait(min(timeout, _WAIT_S_MAX))
        except BaseException:
            # Interrupted between releasing and re-acquiring the lock: acquire it, for the caller's `with` to release.
            if not self._is_owned():
                self.acquire()
            raise

    def notify_all(self) -> None:
        self._waiting.notify_all()


def _new_classes() -> tuple[type[_ThreadLock], type[_ThreadCondition]]:
    """New classes for the locks and conditions of one process, so that they can be disabled in its children."""
    return type("_Lock", (_ThreadLock,), {"__slots__": ()}), type("_Condition", (_ThreadCondition,), {})


_Lock, _Condition = _new_classes()


def _refuse(*_arguments: object) -> NoReturn:
    raise Forked(
        "this store was opened before the process was forked, and can't be used in the child: open it in each process, "
        "after the fork, or have multiprocessing start them by 'spawn' or 'forkserver'"
    )


def _disown() -> None:
    global _Lock, _Condition
    for kind in (_Lock, _Condition):
        for verb in ("__enter__", "acquire"):
            setattr(kind, verb, _refuse)
    _Lock, _Condition = _new_classes()


os.register_at_fork(after_in_child=_disown)


class ThreadTasks:
    """Threads of the operating system. They are daemon threads: the store's own exit hook ends them in order."""

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        thread = threading.Thread(target=work, name=f"anabranch-{name}", daemon=True)
        thread.start()
        return _ThreadTask(thread)

    def lock(self) -> Lock:
        return _Lock()

    def condition(self) -> Condition:
        return _Condition()

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, _SLEEP_S_MAX))
