"""What a host writes of its hot standbys. Needs no Spark: the drivers are stand-ins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import anabranch as ab
from anabranch.catalog.state.query import QueryLease, QueryRow, QueryStandby
from anabranch.deployments import hosting
from anabranch.deployments.record import put_query
from anabranch.errors import StoreUnavailable
from anabranch.model.ids import Micros
from anabranch.spark.queries.log import QueryLogs
from anabranch.spark.queries.standbys import HotStandbys
from anabranch.store import Store

LEASE_US = 10_000_000


class Driver:
    """Keeps what it is told."""

    pid = 7

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.told.append(message)


@pytest.fixture
def store() -> Iterator[Store]:
    with ab.connect("memory://") as store:
        yield store


def running(store: Store, name: str) -> None:
    """A query that another host runs and that wants a hot standby."""
    now = store.runtime.clock.now()
    lease = QueryLease("other", 1, "other", Micros(now + LEASE_US))
    row = QueryRow(name, now, now, "running", 1, 3, state="running", lease=lease, standby="hot")
    with store.catalog.writing() as txn:
        put_query(txn, row)


def rows(store: Store) -> dict[str, QueryRow]:
    return {row.name: row for row in hosting.queries(store.catalog)}


def standby(store: Store, name: str) -> QueryStandby:
    found = rows(store)[name].hot_standby
    assert found is not None
    return found


def look(store: Store, standbys: HotStandbys) -> None:
    standbys.look(rows(store), {}, store.runtime.clock.now())


def test_what_a_driver_says_while_the_store_does_not_answer_is_written_with_the_next_renewal(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver: Any = Driver()
    standbys = HotStandbys(store, "me", QueryLogs(store), lease_us=LEASE_US, driver=lambda row, own: driver)
    running(store, "q")
    look(store, standbys)
    assert driver.told == [{"follow": "q", "change": 3}]

    def unavailable(*_: object) -> None:
        raise StoreUnavailable("no answer")

    for said, ready, refused in (
        ({"event": "following", "ready": True}, True, None),
        ({"event": "unfollowed", "how": "refused", "error": "it has code"}, False, "it has code"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(hosting, "update_standby", unavailable)
            with pytest.raises(StoreUnavailable):
                standbys.handle_message(driver, {"query": "q", "change": 3, **said})
        standbys.renew()
        assert (standby(store, "q").ready, standby(store, "q").refused) == (ready, refused)
        assert standbys.is_ready("q", 3) == ready


def test_a_query_that_is_deleted_leaves_nothing_behind(store: Store) -> None:
    driver: Any = Driver()
    standbys = HotStandbys(store, "me", QueryLogs(store), lease_us=LEASE_US, driver=lambda row, own: driver)
    running(store, "q")
    look(store, standbys)
    standbys.handle_message(driver, {"query": "q", "change": 3, "event": "unfollowed", "how": "failed", "error": "x"})
    look(store, standbys)
    assert standbys._failures and standbys._again_s and standbys._missing_since_s
    standbys.look({}, {}, store.runtime.clock.now())
    assert not (standbys._failures or standbys._again_s or standbys._missing_since_s or standbys.needs)
