"""The tasks port: the only way to start concurrent work, to exclude it and to wait for it.

A port method of catalog or blobs may be a switching point in the simulation, so a lock that is held across one
must come from here too: under the simulation a plain `threading.Lock` would stop the world.

So nothing of a store goes past these locks, and in a forked child each of them refuses: who held it there, and whom it
waits for, are not there. That costs nothing where nobody forks.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - pyarrow loads it when it first needs it; at the interpreter's exit that fails
import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Protocol

from anabranch.errors import Forked


class Lock(Protocol):
    """Mutual exclusion, not re-entrant; a context manager."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock; without `blocking`, False at once where it is taken."""
        ...

    def release(self) -> None:
        """Give it back."""
        ...

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Condition(Protocol):
    """A lock with waiting, as `threading.Condition`. Wake-ups may be spurious: wait in a loop."""

    def __enter__(self) -> bool: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Release, wait at most `timeout` seconds, take again. False after a time-out."""
        ...

    def notify_all(self) -> None:
        """Wake all waiters."""
        ...


class Task(Protocol):
    """Work that was spawned."""

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; False after `timeout` seconds, and at once in the task itself."""
        ...


class Tasks(Protocol):
    """Where concurrent work comes from."""

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """Start `work` beside the caller. It must end by itself when its owner closes."""
        ...

    def lock(self) -> Lock:
        """A new lock."""
        ...

    def condition(self) -> Condition:
        """A new condition with a lock of its own."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let others work for that long."""
        ...


class _ThreadTask:
    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def join(self, timeout: float | None = None) -> bool:
        if self._thread is threading.current_thread():
            return False  # a callback that closes what called it
        self._thread.join(timeout)
        return not self._thread.is_alive()


class _ThreadLock:
    """`threading.Lock`, of which no class can be made: its own methods, found without a step of Python."""

    __slots__ = ("__enter__", "__exit__", "acquire", "release")

    def __init__(self) -> None:
        lock = threading.Lock()
        self.acquire, self.release = lock.acquire, lock.release
        self.__enter__, self.__exit__ = lock.__enter__, lock.__exit__


class _ThreadCondition(type(threading.RLock())):  # type: ignore[misc]
    """A condition whose lock is taken and given back by C code alone: Ctrl-C, which may strike between any two steps
    of Python, can't leave it taken. `threading.Condition` enters and leaves in Python."""

    def __init__(self) -> None:
        self._waiting = threading.Condition(self)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return self._waiting.wait(timeout)
        except BaseException:
            # It struck where the lock was given back and not yet taken again; the caller's `with` will give it back.
            if not self._is_owned():
                self.acquire()
            raise

    def notify_all(self) -> None:
        self._waiting.notify_all()


def _of_this_process() -> tuple[type[_ThreadLock], type[_ThreadCondition]]:
    """Classes of their own for the locks and conditions of one process, by which they are refused in its children."""
    return type("_Lock", (_ThreadLock,), {"__slots__": ()}), type("_Condition", (_ThreadCondition,), {})


_Lock, _Condition = _of_this_process()


def _refuse(*_arguments: object) -> NoReturn:
    raise Forked(
        "this store was opened before the process was forked, and can't be used in the child: open it in each process, "
        "behind the fork, or have multiprocessing start them by 'spawn' or 'forkserver'"
    )


def _disown() -> None:
    global _Lock, _Condition
    for kind in (_Lock, _Condition):
        for verb in ("__enter__", "acquire"):
            setattr(kind, verb, _refuse)
    _Lock, _Condition = _of_this_process()


os.register_at_fork(after_in_child=_disown)


class ThreadTasks:
    """Threads of the operating system. They are daemons: the store's own exit hook ends them in order."""

    def spawn(self, name: str, work: Callable[[], None]) -> Task:
        """See `Tasks.spawn`."""
        thread = threading.Thread(target=work, name=f"anabranch-{name}", daemon=True)
        thread.start()
        return _ThreadTask(thread)

    def lock(self) -> Lock:
        """See `Tasks.lock`."""
        return _Lock()

    def condition(self) -> Condition:
        """See `Tasks.condition`."""
        return _Condition()

    def sleep(self, seconds: float) -> None:
        """See `Tasks.sleep`."""
        time.sleep(seconds)
