"""Room in the write-ahead log: made where commits come often, invisible to everybody, and lost by nobody."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task, ThreadTasks


def _commit(catalog: SqliteCatalog, numbers: range) -> None:
    for number in numbers:
        with catalog.writing() as txn:
            txn.record_request(f"name-{number}", "test", str(number), now=Micros(1))


def _numbers(txn: Reading, count: int) -> list[str | None]:
    found = [txn.request(f"name-{number}") for number in range(count)]
    return [None if each is None else each[1] for each in found]


def test_the_log_is_lengthened_for_who_commits_often_and_only_then(tmp_path: Path) -> None:
    catalog = SqliteCatalog(tmp_path, Runtime())
    log = tmp_path / "catalog.db-wal"
    _commit(catalog, range(5))
    assert log.stat().st_size < limits.MIB // 2
    _commit(catalog, range(5, 40))
    size = log.stat().st_size
    assert size == limits.MIB
    _commit(catalog, range(40, 100))
    assert log.stat().st_size == size, "commits write over the room that was made"
    catalog.close()


def test_a_checkpoint_for_which_there_is_no_thread_fails_no_commit_and_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Tasks(ThreadTasks):
        refused = 0

        def spawn(self, name: str, work: Callable[[], None]) -> Task:
            if name == "checkpoint" and not self.refused:
                self.refused += 1
                raise RuntimeError("can't start new thread")
            return super().spawn(name, work)

    monkeypatch.setattr(limits, "WAL_PAGES_CHECKPOINT", 1)
    tasks = Tasks()
    catalog = SqliteCatalog(tmp_path, Runtime(tasks=tasks))
    _commit(catalog, range(64))
    assert tasks.refused and catalog._checkpoint is None
    _commit(catalog, range(64, 128))
    assert catalog._checkpoint is not None
    with catalog.reading() as snapshot:
        assert _numbers(snapshot, 128) == [str(number) for number in range(128)]
    catalog.close()


def test_a_checkpoint_that_ends_at_once_is_not_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Tasks(ThreadTasks):
        checkpoints = 0

        def spawn(self, name: str, work: Callable[[], None]) -> Task:
            task = super().spawn(name, work)
            self.checkpoints += task.join()
            return task

    monkeypatch.setattr(limits, "WAL_PAGES_CHECKPOINT", 1)
    tasks = Tasks()
    catalog = SqliteCatalog(tmp_path, Runtime(tasks=tasks))
    _commit(catalog, range(200))
    assert tasks.checkpoints > 1
    catalog.close()


def test_a_crash_leaves_a_log_whose_room_recovery_does_not_mind(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    catalog = SqliteCatalog(folder, Runtime())
    _commit(catalog, range(50))
    crashed = tmp_path / "two"
    crashed.mkdir()
    for name in ("catalog.db", "catalog.db-wal"):
        shutil.copy(folder / name, crashed / name)
    catalog.close()
    again = SqliteCatalog(crashed, Runtime())
    with again.reading() as txn:
        assert _numbers(txn, 50) == [str(number) for number in range(50)]
    _commit(again, range(50, 100))
    again.close()


def test_processes_make_room_side_by_side_without_writing_over_each_other(tmp_path: Path) -> None:
    catalogs = [SqliteCatalog(tmp_path, Runtime()) for _ in range(3)]
    for number in range(300):
        _commit(catalogs[number % 3], range(number, number + 1))
    for catalog in catalogs:
        with catalog.reading() as txn:
            assert _numbers(txn, 300) == [str(number) for number in range(300)]
        catalog.close()
    database = apsw.Connection(str(tmp_path / "catalog.db"))
    assert database.pragma("integrity_check") == "ok"
    database.close()
