"""How long a transaction waits for its turn on SQLite."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.sqlite.lock import FairLock
from anabranch.errors import StoreBusy, StoreUnavailable
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.runtime.tasks import ThreadTasks
from tests.waiting import until, until_ended

_THREADS = 6


class _Waiting(SystemClock, ThreadTasks):
    """Time that passes as fast as anybody sleeps, once all threads have begun to wait."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.begun: set[int] = set()

    def monotonic(self) -> float:
        self.begun.add(threading.get_ident())
        return self.seconds

    def sleep(self, seconds: float) -> None:
        until(lambda: len(self.begun) > _THREADS)
        self.seconds += seconds


def test_many_threads_wait_no_longer_than_one_for_a_process_that_is_stopped(tmp_path: Path) -> None:
    waiting = _Waiting()
    runtime = Runtime(clock=waiting, tasks=waiting, settings=Settings(catalog_lock_s=2))
    catalog = SqliteCatalog(tmp_path, runtime)
    stopped = FairLock(tmp_path, runtime)
    stopped.acquire()
    refused: list[StoreBusy] = []

    def commit() -> None:
        try:
            with catalog.writing():
                pytest.fail("another process has the lock")
        except StoreBusy as exc:
            refused.append(exc)

    threads = [threading.Thread(target=commit) for _ in range(_THREADS)]
    for thread in threads:
        thread.start()
    until_ended(*threads)
    assert len(refused) == _THREADS
    assert waiting.seconds < 2.1
    stopped.release()
    with catalog.writing():
        pass
    stopped.close()
    catalog.close()


class _Flock:
    """The system's flock, which fails for some calls."""

    def __init__(self, fails: Callable[[int, int], OSError | None]) -> None:
        self._fails = fails

    def __call__(self, file: int, what: int) -> None:
        if (error := self._fails(file, what)) is not None:
            raise error
        _FLOCK(file, what)


_FLOCK = fcntl.flock


@pytest.mark.parametrize(("number", "told"), [(errno.ENOLCK, "supports flock"), (errno.EIO, "rror")])
@pytest.mark.parametrize("which", ["catalog.queue", "catalog.lock"])
def test_a_lock_that_the_system_refuses_is_one_clear_error_and_is_left_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, number: int, told: str
) -> None:
    catalog = SqliteCatalog(tmp_path, Runtime(settings=Settings(catalog_lock_s=1)))
    other = FairLock(tmp_path, Runtime(settings=Settings(catalog_lock_s=1)))

    def fails(file: int, what: int) -> OSError | None:
        assert catalog._file_lock is not None
        own = file in catalog._file_lock._files.values()
        mine = own and Path(f"/proc/self/fd/{file}").readlink() == tmp_path / which
        return OSError(number, os.strerror(number)) if mine and what != fcntl.LOCK_UN else None

    monkeypatch.setattr(fcntl, "flock", _Flock(fails))
    with pytest.raises(StoreUnavailable, match=told) as caught, catalog.writing():
        pytest.fail("the lock was refused")
    assert type(caught.value) is StoreUnavailable
    other.acquire()  # neither lock was kept
    other.release()
    monkeypatch.setattr(fcntl, "flock", _FLOCK)
    with catalog.writing():
        pass
    other.close()
    catalog.close()


@pytest.mark.parametrize("which", ["catalog.queue", "catalog.lock"])
def test_a_lock_that_cant_be_given_back_is_given_back_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    catalog = SqliteCatalog(tmp_path, Runtime(settings=Settings(catalog_lock_s=1)))
    other = FairLock(tmp_path, Runtime(settings=Settings(catalog_lock_s=1)))

    def fails(file: int, what: int) -> OSError | None:
        assert catalog._file_lock is not None
        own = file in catalog._file_lock._files.values()
        mine = own and Path(f"/proc/self/fd/{file}").readlink() == tmp_path / which
        return OSError(errno.EIO, "Input/output error") if mine and what == fcntl.LOCK_UN else None

    monkeypatch.setattr(fcntl, "flock", _Flock(fails))
    for _ in range(2):
        with catalog.writing():
            pass
        other.acquire()
        other.release()
    other.close()
    catalog.close()
