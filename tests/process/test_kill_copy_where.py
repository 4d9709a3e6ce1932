"""kill -9 of processes that copy by a filter, while others append and compact: the copy is that of the first moment."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.store import Store
from anabranch.transfer.jobs.record import JobState
from tests.process.children import Child
from tests.process.test_kill_replace import COLUMNS, append, opened
from tests.store.helpers import sound

pytestmark = pytest.mark.process

STEPS = 14  # a process is killed at one of its first so many transactions
KILLS = 5
EVENTS = 1_200


def small(put: Callable[[object, str, int], None] = setattr) -> None:
    """Many portions of few events."""

    for name, value in {"REPLACE_VIEW_EVENTS": 8, "REPLACE_RUNS_MIN": 2, "REPLACE_EVENTS_MAX": 40}.items():
        put(limits, name, value)
    put(limits, "JOB_RANGE_BYTES", 1_000)


def work(tell: Callable[..., None], folder: Path) -> None:
    """Copy, or resume the job, and wait to be killed."""
    small()
    with opened(folder, tell) as store:
        copy(store)
        for _ in range(STEPS):
            tell("step")
        time.sleep(600)


def copy(store: Store) -> Any:
    """Copy, once, whatever was done before."""
    for row in store.jobs.list():
        return store.jobs.resume(row.id, window=2, take_over=True).wait()
    return store.streams.copy("s/x", "s/y", where="n % 3 = 0 OR n < 100", window=2)


def numbers(store: Store, name: str) -> list[int]:
    with store.reader(name) as reader:
        return sorted(event.body["n"] for event in reader)


@pytest.mark.slow
def test_a_copy_by_a_filter_killed_again_and_again_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(6)
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/x", schema=COLUMNS, key="key", time="at", scaling=2)
        for first in range(0, EVENTS, 300):
            append(store, [(n, n) for n in range(first, first + 300)])
    later = 0
    for number in range(KILLS):
        child = Child(tmp_path, f"copy-{number}", work, tmp_path)
        child.wait_for("step", rng.randint(3, STEPS))
        child.kill()
        with ab.connect(tmp_path / "store") as store:
            if store.jobs.list():  # the moment of the copy has passed
                append(store, [(EVENTS + later + n, EVENTS + later + n) for n in range(20)])
                later += 20
            store.compact(force=True)
            store.collect(horizon_us=0)  # what the job holds is spared
            assert list(store.check()) == []
            assert numbers(store, "s/x") == list(range(EVENTS + later))
    with monkeypatch.context() as patch, opened(tmp_path) as store:
        small(patch.setattr)
        copied = copy(store)
    with ab.connect(tmp_path / "store") as store:
        expected = [n for n in range(EVENTS) if n % 3 == 0 or n < 100]
        assert (copied.filtered.events, copied.filtered.rewritten > 0) == (len(expected), True)
        assert numbers(store, "s/y") == expected
        assert [row.state for row in store.jobs.list()] == [JobState.DONE]
        assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/x", "s/y"]
        assert sound(store)
