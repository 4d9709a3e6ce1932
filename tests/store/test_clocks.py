"""Processes whose clocks disagree, in how they see the catalog's clock or in their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import LeaseExpired
from anabranch.model.ids import Micros
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.streams.publish import Publication
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.postgres_server import drop, fresh_url
from tests.store.kit import SECOND


@pytest.mark.parametrize("late_s", [10, 3 * 3600])
def test_a_writer_whose_clock_is_late_commits_behind_the_horizon_of_another(tmp_path: Path, late_s: int) -> None:
    now = 1_700_000_000 * SECOND
    settings = Settings(inline_bytes_max=0)
    ahead = runtime_by(ManualClock(now), settings=settings)
    behind = runtime_by(ManualClock(now - late_s * SECOND), settings=settings)
    assert limits.HORIZON_US < 3 * 3600 * SECOND
    with (
        ab.connect(tmp_path / "river", runtime=ahead, create=True) as keeper,
        ab.connect(tmp_path / "river", runtime=behind, create=True) as late,
    ):
        keeper.scopes.create("s")
        keeper.streams.create("s/raw")
        assert keeper.collect(horizon_us=0).horizon == now
        with late.writer("s/raw") as writer:
            assert [writer.write(b"%d" % i).result().offset for i in range(3)] == [0, 1, 2]
        with keeper.writer("s/raw") as writer:
            assert writer.write(b"3").result().offset == 3
        with keeper.reader("s/raw") as reader:
            assert [event.body for event in reader] == [b"0", b"1", b"2", b"3"]
        # What the first try left behind is an orphan, and goes with the next collection but one.
        keeper.collect(horizon_us=0)
        assert list(keeper.check()) == []


class WrongClock(SystemClock):
    """The machine's wall clock, set wrong."""

    def __init__(self, ahead_us: int) -> None:
        self._ahead_us = ahead_us

    def now(self) -> Micros:
        return Micros(super().now() + self._ahead_us)


Open = Callable[..., ab.Store]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the one store once more, as a process does whose own clock is that much ahead."""
    url = fresh_url() if request.param == "postgres" else str(tmp_path / "river")
    stores: list[ab.Store] = []

    def connect(ahead_us: int = 0) -> ab.Store:
        store = ab.connect(url, blobs=tmp_path / "blobs", runtime=Runtime(clock=WrongClock(ahead_us)), create=True)
        stores.append(store)
        return store

    with connect() as store:
        store.scopes.create("s")
        store.streams.create("s/a")
    yield connect
    for store in stores:
        store.close()
    if request.param == "postgres":
        drop(url)


def upkeep(store: ab.Store) -> None:
    """All that judges what other processes hold by its age."""
    for _ in range(2):
        store.collect(horizon_us=0)
        store.retain()
        store.rescale()
    list(store.repair())


@pytest.mark.parametrize("ahead_days", [3, -3])
def test_upkeep_by_a_wrong_clock_takes_nothing_from_others(opened: Open, ahead_days: int) -> None:
    store, wrong = opened(), opened(ahead_days * DAY_US)
    stream = store.streams.get("s/a").id
    store.policies.retention("s/a", ab.RetainFor("1h"))
    store.writer("s/a").write(b"old").result()
    with store.transaction() as txn, store.ephemeral.create("s/tmp"), store.hold("spark", "job") as hold:
        txn.writer("s/a").write(b"x" * 20_000)
        txn.flush()
        stager = store.stager("s/a", lease=hold.lease)
        stager.write(pa.table({"key": ["k"], "payload": [b"z" * 20_000]}))
        staged = stager.finish()
        upkeep(wrong)
        hold.renew()
        upkeep(wrong)
        assert wrong.collect().horizon < store.runtime.clock.now()
        assert store.publish([Publication(stream, staged)], request="r")
        txn.writer("s/a").write(b"y" * 20_000)
        assert store.streams.exists("s/tmp")
    assert payloads(store, "s/a") == [b"old", b"z" * 20_000, b"x" * 20_000, b"y" * 20_000]
    assert list(store.check()) == []


def test_what_a_process_holds_whose_clock_is_behind_is_not_taken_from_it(opened: Open) -> None:
    store, late = opened(), opened(-3 * DAY_US)
    with late.transaction() as txn, late.ephemeral.create("s/tmp"), late.hold("spark", "job") as hold:
        txn.writer("s/a").write(b"x" * 20_000)
        txn.flush()
        upkeep(store)
        hold.confirm()
        assert store.streams.exists("s/tmp")
    assert payloads(store, "s/a") == [b"x" * 20_000]


def test_what_a_process_left_whose_clock_was_ahead_ends_in_time(opened: Open) -> None:
    store, ahead = opened(), opened(3 * DAY_US)
    now = store.runtime.clock.now()
    left = ahead.transaction()
    lease = ahead.hold("spark", "job").__enter__().lease
    assert left.info.expires_at < now + DAY_US
    assert lease.expires_at < now + DAY_US
    left.abort()


DAY_US = 24 * 3600 * SECOND
AHEAD_US = 3 * DAY_US


@pytest.fixture
def river(tmp_path: Path) -> Iterator[ab.Store]:
    """A store that a process whose clock is three days ahead has collected once."""
    now = 1_700_000_000 * SECOND
    with ab.connect(tmp_path / "river", runtime=runtime_by(ManualClock(now + AHEAD_US)), create=True) as keeper:
        keeper.scopes.create("s")
        keeper.streams.create("s/a")
        keeper.streams.create("s/out")
        assert keeper.collect().horizon > now
    with ab.connect(tmp_path / "river", runtime=runtime_by(ManualClock(now)), create=True) as store:
        yield store
        store.collect()
        store.collect()
        assert [each for each in store.check() if each.where != "horizon"] == []


def payloads(store: ab.Store, stream: str) -> list[bytes]:
    with store.reader(stream) as reader:
        return [event.body for event in reader]


@pytest.mark.parametrize("size", [1, 20_000, 200_000])
@pytest.mark.parametrize("flush", [False, True])
def test_a_transaction_commits_behind_the_horizon_of_a_clock_that_is_ahead(
    river: ab.Store, size: int, flush: bool
) -> None:
    with river.transaction() as txn:
        txn.writer("s/a").write(b"x" * size, key="k")
        if flush:
            txn.flush()
            river.collect()
        txn.writer("s/a").write(b"y" * size, key="k")
    assert payloads(river, "s/a") == [b"x" * size, b"y" * size]


def test_an_output_of_a_group_is_written_behind_that_horizon(river: ab.Store) -> None:
    river.writer("s/a").write(b"in").result()
    group = river.groups.open("s/g", streams=["s/a"])
    with group.reader("r", delivery="exactly_once") as reader:
        assert reader.read(3) is not None
        reader.commit({"s/out": pa.table({"key": ["k"], "payload": [b"y" * 20_000]})})
    assert payloads(river, "s/out") == [b"y" * 20_000]


@pytest.mark.parametrize("leased", [False, True])
@pytest.mark.parametrize("collected", [False, True])
def test_what_is_staged_is_published_behind_that_horizon(river: ab.Store, leased: bool, collected: bool) -> None:
    stream = river.streams.get("s/a").id
    with river.hold("spark", "job") as hold:
        stager = river.stager("s/a", lease=hold.lease if leased else None)
        stager.write(pa.table({"key": ["k"], "payload": [b"z" * 50_000]}))
        staged = stager.finish()
        if collected:
            river.collect()
        assert river.publish([Publication(stream, staged)], request="r")
    assert payloads(river, "s/a") == [b"z" * 50_000]


def test_what_was_staged_before_the_horizon_is_written_anew_while_it_is_there(tmp_path: Path) -> None:
    now = 1_700_000_000 * SECOND
    clock = ManualClock(now)
    with ab.connect(tmp_path / "river", runtime=runtime_by(clock), create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")

        def staged(letter: bytes) -> Publication:
            stager = store.stager("s/a")
            stager.write(pa.table({"key": ["k"], "payload": [letter * 50_000]}))
            return Publication(store.streams.get("s/a").id, stager.finish())

        kept, lost = staged(b"a"), staged(b"b")
        with store.catalog.writing() as txn:
            txn.set_horizon(Micros(now + AHEAD_US))
        assert store.publish([kept], request="kept")
        assert lost.staged[0].blob is not None
        store.collect()
        assert store.blobs.size(lost.staged[0].blob.key) is None
        with pytest.raises(LeaseExpired):
            store.publish([lost], request="lost")
        assert payloads(store, "s/a") == [b"a" * 50_000]
