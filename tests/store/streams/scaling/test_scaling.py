"""Scaling by load in a store: measured from the catalog's totals, by whoever is asked, under one lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.blobs.local import LocalBlobs
from anabranch.blobs.memory import MemoryBlobs
from anabranch.catalog.port import Catalog
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.sqlite.adapter import SqliteCatalog
from anabranch.catalog.state.load import LOAD, SCALING
from anabranch.errors import StreamNotFound
from anabranch.log.lease import HeldLease
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.postgres_server import drop, fresh_url
from tests.store.kit import SECOND
from tests.waiting import until


class Timed:
    """A store whose clock the test moves, and that can be opened a second time."""

    def __init__(self, kind: str, folder: Path, settings: Settings | None = None) -> None:
        self.clock = ManualClock()
        self.settings = settings or Settings()
        self.folder, self.kind = folder, kind
        self.url = fresh_url() if kind == "postgres" else ""
        self.store = self.open()
        self.store.scopes.create("s")

    def open(self) -> Store:
        runtime = runtime_by(self.clock, settings=self.settings)
        catalog: Catalog = PostgresCatalog(self.url, runtime) if self.url else SqliteCatalog(self.folder, runtime)
        return Store(catalog, MemoryBlobs() if self.url else LocalBlobs(self.folder, runtime), runtime)

    def load(self, name: str, events: int, seconds: int) -> None:
        """So many events every ten seconds, with a look at the load behind each."""
        with self.store.writer(name) as writer:
            for _ in range(seconds // 10):
                for n in range(events):
                    writer.write(b"x", key=f"k{n}")
                writer.flush()
                self.clock.pass_time(10 * SECOND)
                self.store.rescale()


@pytest.fixture(params=["sqlite", "postgres"])
def timed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Timed]:
    timed = Timed(request.param, tmp_path)
    yield timed
    timed.store.close()
    if timed.url:
        drop(timed.url)


def test_segments_follow_the_load_and_keep_every_event(timed: Timed) -> None:
    store = timed.store
    store.streams.create("s/a", scaling=ab.ByEventRate(2, factor=4, minimum=2))
    assert len(store.streams.view("s/a").current) == 2
    timed.load("s/a", 100, 200)
    grown = len(store.streams.view("s/a").current)
    assert grown >= 5
    timed.load("s/a", 1, 2_400)
    assert len(store.streams.view("s/a").current) == 2
    with store.reader("s/a") as reader:
        assert sum(1 for _ in reader) == 100 * 20 + 240
    assert list(store.check()) == []


def test_another_process_continues_with_the_samples(timed: Timed) -> None:
    timed.store.streams.create("s/a", scaling=ab.ByByteRate(10, factor=2))
    timed.load("s/a", 100, 60)
    assert len(timed.store.streams.view("s/a").current) == 1
    timed.store.close()
    timed.store = timed.open()
    timed.load("s/a", 100, 20)
    assert len(timed.store.streams.view("s/a").current) == 2


def test_scaling_policies_are_read_set_and_deleted_with_the_stream(timed: Timed) -> None:
    streams = timed.store.streams
    streams.create("s/a")
    assert timed.store.policies.scaling("s/a") == ab.Fixed(1)
    policy = ab.ByEventRate(1000, 4, 3)
    timed.store.policies.scaling("s/a", policy, request="r")
    timed.store.policies.scaling("s/a", policy, request="r")
    assert timed.store.policies.scaling("s/a") == policy
    timed.store.rescale()
    assert len(streams.view("s/a").current) == 3
    streams.copy("s/a", "s/copy")
    assert timed.store.policies.scaling("s/copy") == ab.Fixed(3)
    streams.rename("s/a", "s/b")
    assert timed.store.policies.scaling("s/b") == policy
    timed.store.policies.scaling("s/b", ab.Fixed())
    assert timed.store.policies.scaling("s/b") == ab.Fixed(3)
    timed.store.policies.scaling("s/b", policy)
    timed.store.rescale()
    streams.delete("s/b")
    with timed.store.catalog.reading() as reading:
        assert reading.states(SCALING) == reading.states(LOAD) == []
    with pytest.raises(StreamNotFound):
        timed.store.policies.scaling("s/b", policy)
    assert timed.store.rescale().streams == 0


def test_one_process_scales_at_a_time_and_sealed_streams_are_skipped(timed: Timed) -> None:
    timed.store.streams.create("s/a")
    timed.store.policies.scaling("s/a", ab.ByEventRate(1000, minimum=4))
    with HeldLease(timed.store.catalog, timed.store.runtime, "rescale", "another process"):
        assert timed.store.rescale().streams == 0
    timed.store.streams.create("s/sealed", scaling=ab.ByEventRate(1))
    timed.store.streams.seal("s/sealed")
    report = timed.store.rescale()
    assert (report.streams, report.scaled) == (2, 1)


def test_another_process_scales_once_the_lease_of_a_killed_one_expires(timed: Timed) -> None:
    timed.store.streams.create("s/a")
    timed.store.policies.scaling("s/a", ab.ByEventRate(1000, minimum=4))
    HeldLease(timed.store.catalog, timed.store.runtime, "rescale", "a process that is killed").__enter__()
    timed.clock.pass_time(limits.LEASE_US - 1)
    assert timed.store.rescale().streams == 0
    timed.clock.pass_time(1)
    assert timed.store.rescale().scaled == 1


def test_the_windows_and_cooldowns_are_settings(tmp_path: Path) -> None:
    second = 1_000_000
    told = Settings(
        scaling_short_us=20 * second, scaling_long_us=40 * second,
        scaling_split_cooldown_us=30 * second, scaling_merge_cooldown_us=50 * second,
    )  # fmt: skip
    timed = Timed("sqlite", tmp_path, told)
    with timed.store:
        timed.store.streams.create("s/a", scaling=ab.ByEventRate(5))
        segments = []
        for events in [200] * 5 + [0] * 6:
            timed.load("s/a", events, 10)
            segments.append(len(timed.store.streams.view("s/a").current))
    # Each rests, from the first look on, for 30 seconds before it is split and for 50 before it is merged.
    assert segments == [1] * 3 + [2] * 6 + [1] * 2


def test_a_clock_that_was_set_back_restarts_the_samples(timed: Timed) -> None:
    timed.store.streams.create("s/a", scaling=ab.ByEventRate(1))
    timed.load("s/a", 100, 50)
    timed.clock.pass_time(-3600 * SECOND)
    timed.load("s/a", 100, 50)
    assert len(timed.store.streams.view("s/a").current) == 1
    timed.load("s/a", 100, 20)
    assert len(timed.store.streams.view("s/a").current) > 1


def test_a_process_that_opted_in_scales_in_the_background(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", settings=Settings(scaling_s=0.01), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        store.policies.scaling("s/a", ab.ByEventRate(1000, minimum=3))
        until(lambda: len(store.streams.view("s/a").current) == 3)
