"""Which drivers a host keeps that run nothing. Needs no Spark: the processes are stand-ins."""

from __future__ import annotations

import queue

import pytest

from anabranch.catalog.state.query import DEFAULT_GROUP
from anabranch.spark.queries import driver_pool
from anabranch.spark.queries.driver_pool import DriverPool
from anabranch.spark.queries.driver_process import DriverOwner
from anabranch.store import StoreAddresses

DEFAULT, BILLING = DriverOwner(DEFAULT_GROUP), DriverOwner("billing")


class Driver:
    """Starts at once."""

    def __init__(self, *_: object, warm: bool) -> None:
        self.warm = warm
        self.ready = True
        self.on_cluster = False
        self.owner: DriverOwner | None = None
        self.ended = False

    def end(self, timeout_s: float = 0.0) -> str:
        del timeout_s
        self.ended = True
        return "by signal 9"

    def end_idle(self) -> None:
        self.end()


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> DriverPool:
    monkeypatch.setattr(driver_pool, "DriverProcess", Driver)
    return DriverPool(StoreAddresses("/nowhere", None, None), {}, queue.SimpleQueue(), spares=0)


def keep(pool: DriverPool, *busy: Driver, idle_max: int | None = 9) -> None:
    pool.keep_spares(busy, idle_max=idle_max, more=True)  # type: ignore[arg-type]


def of(pool: DriverPool, owner: DriverOwner) -> Driver:
    found = pool.for_query(owner)
    assert isinstance(found, Driver)
    return found


def test_a_driver_of_the_default_group_waits_for_its_next_query_while_there_is_room(pool: DriverPool) -> None:
    first, other = of(pool, DEFAULT), of(pool, BILLING)
    keep(pool)
    assert (first.ended, other.ended) == (False, True)
    assert of(pool, DEFAULT) is first
    keep(pool, first, idle_max=0)
    assert not first.ended
    keep(pool, idle_max=None)  # it may have to answer a question
    assert not first.ended
    keep(pool, idle_max=0)
    assert first.ended
    assert of(pool, DEFAULT) is not first


def test_the_driver_from_which_a_standby_took_over_is_the_next_standby_and_no_more_are_kept(pool: DriverPool) -> None:
    leaders = [of(pool, DEFAULT)]
    for _ in range(3):
        standby = None
        while standby is None:  # else a spare driver is started for it
            standby = pool.for_standby(DEFAULT, leaders[-1])  # type: ignore[arg-type]
        assert isinstance(standby, Driver)
        pool.promote(standby)  # type: ignore[arg-type]
        leaders.append(standby)
        keep(pool, standby)
    first, second, *others = leaders
    assert others == [first, second]
    assert not first.ended and not second.ended


def test_of_the_drivers_that_run_nothing_only_so_many_stay_as_there_is_room_for(pool: DriverPool) -> None:
    leader, others = of(pool, DEFAULT), [Driver(warm=True) for _ in range(3)]
    for each in others:
        each.owner = DEFAULT
        pool.promote(each)  # type: ignore[arg-type]
    keep(pool, leader)
    assert [each.ended for each in (leader, *others)] == [False, False, True, True]
    keep(pool, leader, idle_max=0)
    assert others[0].ended and not leader.ended


def test_a_driver_that_follows_another_query_is_kept_with_its_group(pool: DriverPool) -> None:
    both = Driver(warm=True)
    both.owner = BILLING
    pool.promote(both)  # type: ignore[arg-type]
    keep(pool, both, idle_max=0)
    assert not both.ended and of(pool, BILLING) is both


def test_spare_drivers_are_started_while_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_pool, "DriverProcess", Driver)
    pool = DriverPool(StoreAddresses("/nowhere", None, None), {}, queue.SimpleQueue(), spares=2)
    for idle_max, spares in ((0, 0), (1, 1), (1, 1), (5, 2), (5, 2), (1, 1)):
        keep(pool, idle_max=idle_max)
        assert len(pool._spares()) == spares
