"""kill -9 of processes that run jobs, at random moments: whoever goes on makes what an undisturbed run makes."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.store import Store
from anabranch.transfer.jobs.job import Job
from anabranch.transfer.jobs.record import JobState
from tests.parameters import rest_is_slow
from tests.process.children import Child
from tests.store.helpers import sound
from tests.store.transfer.jobs.kit import SCHEMA, SETTINGS, fill, image, live
from tests.waiting import until

pytestmark = pytest.mark.process

Begin = Callable[[Store, Store], Job]

STEPS = 16  # a process is killed behind one of its first so many transactions
STEPS_FOLLOWING = 5  # of what has little to do
KILLS = 3


def copy(source: Store, target: Store) -> Job:
    return target.jobs.copy(source, "s/a", "t/made", window=2)


def stitch(source: Store, target: Store) -> Job:
    return target.jobs.stitch(source, ["s/b", "s/a"], "t/made", keep_sources=False, window=2)


def stitch_of_both(source: Store, target: Store) -> Job:
    there = ab.InStore(source, "s/a")
    return target.jobs.stitch(target, ["t/there", there], "t/made", keep_sources=False, window=2)


def deduplicate(source: Store, target: Store) -> Job:
    return target.jobs.stitch(source, ["s/a", "s/b"], "t/made", deduplicate=["n"], window=2)


def copy_scope(source: Store, target: Store) -> Job:
    return target.jobs.copy_scope(source, "s", "t", window=2)


def follow(source: Store, target: Store) -> Job:
    return target.jobs.copy(source, "s/a", "t/made", follow=True, window=2)


def follow_within(source: Store, _target: Store) -> Job:
    return source.jobs.copy(source, "s/a", "s/made", follow=True, independent=False)


class Telling:
    """A catalog that tells of each transaction before it begins."""

    def __init__(self, inner: Catalog, tell: Callable[..., None]) -> None:
        self._inner = inner
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def writing(self, *on: Any) -> Any:
        self._tell("step")
        return self._inner.writing(*on)


@contextmanager
def opened(folder: Path, tell: Callable[..., None] = lambda *_: None) -> Iterator[tuple[Store, Store]]:
    """The two stores; catalogs tell of their transactions."""
    with (
        ab.connect(folder / "a", settings=SETTINGS, create=True) as one,
        ab.connect(folder / "b", settings=SETTINGS, create=True) as other,
    ):
        for store in (one, other):
            store.catalog = cast(Catalog, Telling(store.catalog, tell))
            store.jobs._job_store = store.job_store
        yield one, other


def work(tell: Callable[..., None], folder: Path, begin: Begin) -> None:
    """Begin the job, or go on with it, and wait to be killed."""
    limits.JOB_RANGE_BYTES, limits.JOB_BLOB_BYTES = 2 * limits.KIB, limits.KIB  # type: ignore[misc]
    with opened(folder, tell) as (source, target):
        (go_on(source, target) or begin(source, target)).wait()
        for _ in range(STEPS):
            tell("step")
        time.sleep(600)


def go_on(source: Store, target: Store) -> Job | None:
    """The job that is there, run here; None where there is none."""
    for store in (source, target):
        for row in store.jobs.list():
            return store.jobs.resume(row.id, source=source, take_over=True)
    return None


def prepared(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with opened(folder) as (source, target):
        live(source)
        source.streams.create("s/b", schema=SCHEMA, key="device", time="at")
        fill(source, "s/b", 400, 480)
        target.scopes.create("t")
        target.streams.create("t/there", schema=SCHEMA, key="device", time="at")
        fill(target, "t/there", 480, 500)


def killed(
    folder: Path, begin: Begin, steps: int = STEPS, meanwhile: Callable[[Store, int], None] = lambda *_: None
) -> None:
    """Let processes go on with the job one after another, each killed at a moment of its own."""
    rng = random.Random(begin.__name__)
    for number in range(KILLS):
        child = Child(folder, f"{begin.__name__}-{number}", work, folder, begin)
        with ab.connect(folder / "a", settings=SETTINGS, create=True) as source:
            child.wait_for("step")
            meanwhile(source, number)
            child.wait_for("step", rng.randint(2, steps))
            child.kill()
        with opened(folder) as stores:
            for store in stores:
                store.collect(horizon_us=0)  # what a job holds is spared
                assert list(store.check()) == []


def told(store: Store) -> dict[str, Any]:
    """All there is of every stream, the internal ones too."""
    return {str(info.name): image(store, str(info.name)) for info in store.streams.list(internal=True)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin", rest_is_slow([stitch_of_both, copy, stitch, deduplicate, copy_scope]), ids=lambda begin: begin.__name__
)
def test_a_job_killed_again_and_again_ends_as_if_nothing_had_happened(begin: Begin, tmp_path: Path) -> None:
    prepared(tmp_path / "undisturbed")
    shutil.copytree(tmp_path / "undisturbed", tmp_path / "disturbed")
    with opened(tmp_path / "undisturbed") as (source, target):
        begin(source, target).wait()
        expected = told(source), told(target)
    killed(tmp_path / "disturbed", begin)
    with opened(tmp_path / "disturbed") as (source, target):
        job = go_on(source, target) or begin(source, target)
        job.wait()
        assert [row.state for row in target.jobs.list()] == [JobState.DONE]
        assert (told(source), told(target)) == expected
        assert sound(source) and sound(target)


@pytest.mark.parametrize("begin", rest_is_slow([follow, follow_within]), ids=lambda begin: begin.__name__)
def test_a_copy_that_follows_and_is_killed_again_and_again_is_the_source(begin: Begin, tmp_path: Path) -> None:
    prepared(tmp_path)

    def meanwhile(source: Store, number: int) -> None:
        fill(source, "s/a", 500 + 40 * number, 540 + 40 * number, note="more")
        source.streams.scale("s/a", 3 - number % 2)

    killed(tmp_path, begin, STEPS_FOLLOWING, meanwhile)
    with opened(tmp_path) as (source, target):
        job = go_on(source, target) or begin(source, target)
        fill(source, "s/a", 700, 720, note="last")
        store, name = (source, "s/made") if begin is follow_within else (target, "t/made")
        until(lambda: store.streams.exists(name) and count(store, name) == count(source, "s/a"))
        source.streams.seal("s/a")
        job.wait()
        assert image(store, name) == image(source, "s/a")
        assert sound(source) and sound(target)


def count(store: Store, name: str) -> int:
    """How many events it has."""
    return sum(store.streams.view(name).length(each.id) for each in store.streams.view(name).ordered)
