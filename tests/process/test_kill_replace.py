"""kill -9 of processes that replace a time range of out-of-order data, while others append: nothing is lost or doubled."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.store import Store
from anabranch.transfer.jobs.record import JobState
from tests.process.children import Child
from tests.process.test_kill_jobs import Telling
from tests.store.helpers import sound

pytestmark = pytest.mark.process

COLUMNS = pa.schema([("key", pa.string()), ("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])
LOW, HIGH = 1_000, 2_000
STEPS = 14  # a process is killed at one of its first so many transactions
KILLS = 5


def small(put: Callable[[object, str, int], None] = setattr) -> None:
    """Many portions of few events."""
    for name, value in {"REPLACE_VIEW_EVENTS": 8, "REPLACE_RUNS_MIN": 2, "REPLACE_EVENTS_MAX": 40}.items():
        put(limits, name, value)


@contextmanager
def opened(folder: Path, tell: Callable[..., None] = lambda *_: None) -> Iterator[Store]:
    """The store; its catalog tells of its transactions."""
    with ab.connect(folder / "store", create=True) as store:
        store.catalog = cast(Catalog, Telling(store.catalog, tell))
        store.jobs._job_store = store.job_store
        yield store


def rows(found: list[tuple[int, int]]) -> pa.Table:
    """Events of (time, number)."""
    times = pa.array([time for time, _ in found], pa.int64()).cast(COLUMNS.field("at").type)
    keys = pa.array([f"k{number % 5}" for _, number in found])
    return pa.Table.from_arrays([keys, times, pa.array([number for _, number in found], pa.int64())], schema=COLUMNS)


def append(store: Store, found: list[tuple[int, int]], name: str = "s/x") -> None:
    with store.writer(name) as writer:
        writer.write_batch(rows(found)).result()


def numbers(store: Store) -> list[int]:
    with store.reader("s/x") as reader:
        return sorted(event.body["n"] for event in reader)


def work(tell: Callable[..., None], folder: Path) -> None:
    """Replace, or resume the job, and wait to be killed."""
    small()
    with opened(folder, tell) as store:
        replace(store)
        for _ in range(STEPS):
            tell("step")
        time.sleep(600)


def replace(store: Store) -> Any:
    """Replace the range, once, whatever was done before."""
    for row in store.jobs.list():
        return store.jobs.resume(row.id, window=2, take_over=True).wait()
    return store.streams.replace("s/x", between=(LOW, HIGH), with_="s/new", window=2)


@pytest.mark.slow
def test_a_replacement_killed_again_and_again_is_done_once_and_keeps_what_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(6)
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        for name in ("s/x", "s/new"):
            store.streams.create(name, schema=COLUMNS, key="key", time="at", scaling=2)
        model = [(rng.randrange(0, 3_000), n) for n in range(1_200)]
        for first in range(0, len(model), 300):
            append(store, model[first : first + 300])
        new = [(rng.randrange(LOW, HIGH), 1_000_000 + n) for n in range(50)]
        append(store, new, "s/new")
    replaced = False
    for number in range(KILLS):
        child = Child(tmp_path, f"replace-{number}", work, tmp_path)
        with ab.connect(tmp_path / "store", create=True) as store:
            child.wait_for("step")
            late = [(HIGH + n, 10_000 + 100 * number + n) for n in range(20)]
            append(store, late)
            model += late
            child.wait_for("step", rng.randint(2, STEPS))
            child.kill()
        with ab.connect(tmp_path / "store", create=True) as store:
            store.compact(force=True)
            store.collect(horizon_us=0)  # what the job holds is spared
            assert list(store.check()) == []
            replaced = replaced or [row.state for row in store.jobs.list()] == [JobState.DONE]
            kept = [n for at, n in model if not LOW <= at < HIGH]
            assert numbers(store) == sorted(kept + [n for _, n in new] if replaced else [n for _, n in model])
            if not replaced:  # these are in the range
                inside = [(LOW + n, 20_000 + 100 * number + n) for n in range(10)]
                append(store, inside)
                model += inside
    with monkeypatch.context() as patch, opened(tmp_path) as store:
        small(patch.setattr)
        done = replace(store)
    with ab.connect(tmp_path / "store", create=True) as store:
        assert (done.added, done.rewritten > 0) == (50, True)
        assert numbers(store) == sorted([n for at, n in model if not LOW <= at < HIGH] + [n for _, n in new])
        assert [row.state for row in store.jobs.list()] == [JobState.DONE]
        assert [str(info.name) for info in store.streams.list(internal=True)] == ["s/new", "s/x"]
        assert sound(store)
