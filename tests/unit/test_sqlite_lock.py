"""How long a transaction waits for its turn on SQLite."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.sqlite.lock import FairLock
from anabranch.errors import StoreBusy
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
