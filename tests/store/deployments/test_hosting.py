"""The leases of hosts: one host at a time has a query, and one that lost it changes nothing any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from anabranch.catalog.state.pipeline import PIPELINE, PipelineHolder, Restart, StoredPipeline
from anabranch.catalog.state.query import QueryLease, QueryRow, QueryStandby
from anabranch.deployments import hosting
from anabranch.errors import Conflict, InvalidArgument
from anabranch.model.ids import Micros
from anabranch.spark.pipelines.record import PipelineRow, refuse_lost, refuse_running
from anabranch.store import Store

SECOND = 1_000_000


def claim(store: Store, token: str, *, now: int, name: str = "q") -> QueryRow | None:
    lease = QueryLease(token, 1, "h", Micros(now + 10 * SECOND))
    return hosting.claim(store.catalog, name, lease, now=Micros(now))


def test_a_host_has_a_query_until_its_lease_runs_out(anywhere: Store) -> None:
    anywhere.queries.deploy("q", "one")
    first = claim(anywhere, "a", now=0)
    assert first is not None and first.epoch == 1
    assert claim(anywhere, "b", now=9 * SECOND) is None
    hosting.renew(anywhere.catalog, "q", 1, until=Micros(19 * SECOND))
    assert claim(anywhere, "b", now=11 * SECOND) is None
    second = claim(anywhere, "b", now=19 * SECOND)
    assert second is not None and second.epoch == 2
    for late in (
        lambda: hosting.renew(anywhere.catalog, "q", 1, until=Micros(99 * SECOND)),
        lambda: hosting.update(anywhere.catalog, "q", 1, lambda row: replace(row, state="running")),
        lambda: hosting.begin_run(anywhere.catalog, "q", 1, second.change),
        lambda: hosting.remove(anywhere.catalog, "q", 1),
    ):
        with pytest.raises(Conflict, match="another one has taken it"):
            late()
    hosting.release(anywhere.catalog, "q", 1)
    assert hosting.queries(anywhere.catalog) == [second]


def test_a_query_that_is_given_back_is_free_at_once(anywhere: Store) -> None:
    anywhere.queries.deploy("q", "one")
    row = claim(anywhere, "a", now=0)
    assert row is not None
    hosting.release(anywhere.catalog, "q", row.epoch)
    again = claim(anywhere, "b", now=1)
    assert again is not None and again.epoch == 2


def test_what_needs_no_host_is_taken_by_none(anywhere: Store) -> None:
    anywhere.queries.deploy("q", "one", start=False)
    assert claim(anywhere, "a", now=0) is None
    assert claim(anywhere, "a", now=0, name="nothing") is None
    anywhere.queries.start("q")
    row = claim(anywhere, "a", now=0)
    assert row is not None
    hosting.update(anywhere.catalog, "q", row.epoch, lambda found: replace(found, state="failed", error="why"))
    hosting.release(anywhere.catalog, "q", row.epoch)
    assert anywhere.queries.get("q").state == "failed"
    assert claim(anywhere, "a", now=99 * SECOND) is None
    assert anywhere.queries.deploy("q", "one").error is None
    assert claim(anywhere, "a", now=99 * SECOND) is not None


@pytest.mark.parametrize("changed", [{"parameters": {"size": "1"}}, {"group": "billing"}])
def test_a_driver_runs_only_what_it_was_chosen_for(store: Store, changed: dict[str, Any]) -> None:
    sql = "DECLARE PARAMETER size STRING DEFAULT '2'; SELECT :size"
    store.queries.deploy("q", sql)
    row = claim(store, "a", now=0)
    assert row is not None
    store.queries.deploy("q", sql, **changed)  # while its driver starts
    with pytest.raises(Conflict, match="changed before it began"):
        hosting.begin_run(store.catalog, "q", 1, row.change)


def test_a_changed_query_does_not_run_before_its_new_run_does(store: Store) -> None:
    def state() -> str:
        [row] = hosting.queries(store.catalog)
        return row.state

    store.queries.deploy("q", "one")
    assert claim(store, "a", now=0) is not None
    hosting.update(store.catalog, "q", 1, lambda row: replace(row, state="running"))
    store.queries.deploy("q", "one")  # nothing has changed
    assert state() == "running"
    store.queries.deploy("q", "two")
    assert state() == "starting"
    store.queries.deploy("q", "three", start=False)
    assert state() == "stopping"


def test_a_query_starts_over_once(store: Store) -> None:
    store.queries.deploy("q", "one", start_from="head", replace_results=True)
    assert claim(store, "a", now=0) is not None

    def restart() -> tuple[str, ...] | None:
        [row] = hosting.queries(store.catalog)
        found = hosting.begin_run(store.catalog, "q", 1, row.change)[2]
        return None if found is None else found.places

    assert restart() == ("head",)
    pipeline = StoredPipeline("q", "one", (), 1, False, Restart(), "stopped", 0, 0, 0)
    with store.catalog.writing() as txn:  # a driver was killed before its checkpoints were settled
        txn.put_state(PIPELINE, "q", pipeline)
    assert restart() == ("head",)
    with store.catalog.writing() as txn:
        txn.put_state(PIPELINE, "q", replace(pipeline, prepared=True))
    assert restart() is None
    store.queries.deploy("q", "one", start_from="head", replace_results=True)
    assert restart() == ("head",)
    with store.catalog.writing() as txn:
        txn.put_state(PIPELINE, "q", replace(pipeline, prepared=True, generation=2))
    assert restart() is None
    assert store.queries.start("q").wanted == "running"
    assert restart() is None


def test_a_run_that_lost_its_pipeline_publishes_nothing(store: Store) -> None:
    holder = PipelineHolder(1, "elsewhere", "query:2:b")
    pipeline = StoredPipeline("q", "one", (), 1, True, Restart(), "running", 0, 0, 1 << 60, holder=holder)
    with store.catalog.writing() as txn:
        txn.put_state(PIPELINE, "q", pipeline)
    with store.catalog.reading() as reading:
        refuse_lost("q", "query:2:b", reading, Micros(0))
        with pytest.raises(Conflict, match="not published"):
            refuse_lost("q", "query:1:a", reading, Micros(0))
    refuse_running(PipelineRow.of(pipeline), 0, "query:")
    with pytest.raises(Exception, match="already running"):
        refuse_running(PipelineRow.of(pipeline), 0)


def test_a_hot_standby_is_left_to_a_host_that_does_not_run_the_query(anywhere: Store) -> None:
    queries, catalog = anywhere.queries, anywhere.catalog
    now = anywhere.runtime.clock.now()
    until = Micros(now + 10_000_000)
    assert queries.deploy("q", "one").standby == "warm"
    info = queries.deploy("q", "one", standby="hot")
    assert (info.version, info.standby, info.standby_state) == (1, "hot", "none")
    assert queries.deploy("q", "one").standby == "hot"
    row = hosting.claim(catalog, "q", QueryLease("a", 1, "host", until), now=now)
    assert row is not None
    assert not hosting.wants_standby(row, "b", now, settled=True)  # it does not run yet
    row = hosting.update(catalog, "q", row.epoch, lambda row: replace(row, state="running"))
    assert [hosting.wants_standby(row, each, now, settled=False) for each in "ab"] == [False, True]
    assert hosting.wants_standby(row, "a", now, settled=True)
    own = QueryStandby("a", 1, "host", until, row.change)
    assert hosting.claim_standby(catalog, "q", own, now=now)
    assert queries.get("q").standby_state == "behind"
    assert hosting.claim_standby(catalog, "q", replace(own, token="b", pid=2), now=now)  # it does not run the query
    assert not hosting.claim_standby(catalog, "q", replace(own, token="c"), now=now)
    with pytest.raises(Conflict):
        hosting.update_standby(catalog, "q", "a", lambda standby: replace(standby, ready=True))
    hosting.update_standby(catalog, "q", "b", lambda standby: replace(standby, ready=True))
    info = queries.get("q")
    assert (info.standby_state, info.standby_host) == ("ready", "2@host")
    (row,) = hosting.queries(catalog)
    late = Micros(until + 1_000_000)
    found = replace(row, hot_standby=replace(own, token="b", ready=True, until=Micros(until + 9_000_000)))
    assert hosting.is_free(found, late)
    assert [hosting.leaves_to_standby(found, each, late, wait_us=3_000_000) for each in "ab"] == [True, False]
    assert not hosting.leaves_to_standby(found, "a", Micros(until + 4_000_000), wait_us=3_000_000)
    hosting.release_standby(catalog, "q", "b")
    assert queries.get("q").standby_state == "none"
    with pytest.raises(InvalidArgument, match="expected standby as 'warm' or 'hot', got 'cold'"):
        queries.deploy("q", "one", standby="cold")  # type: ignore[arg-type]


def test_why_a_query_waits_is_known_until_a_host_takes_it(anywhere: Store) -> None:
    anywhere.queries.deploy("q", "one", group="billing", cpus=1.5, memory="1GB")
    now = anywhere.runtime.clock.now()
    (row,) = hosting.queries(anywhere.catalog)
    hosting.refuse(anywhere.catalog, row, "1@h", "the query needs 1.5 processors, and 1 of 1 are free", now=now)
    info = anywhere.queries.get("q")
    assert (info.group, info.cpus, info.memory) == ("billing", 1.5, 1_000_000_000)
    assert info.refused == "host 1@h has no room: the query needs 1.5 processors, and 1 of 1 are free"
    assert claim(anywhere, "a", now=now) is not None
    assert anywhere.queries.get("q").refused is None
    (row,) = hosting.queries(anywhere.catalog)
    hosting.refuse(anywhere.catalog, row, "2@h", "full", now=now)
    assert hosting.queries(anywhere.catalog) == [row]


def test_why_a_query_has_no_hot_standby_is_known_until_a_host_has_it(anywhere: Store) -> None:
    queries, catalog = anywhere.queries, anywhere.catalog
    now = anywhere.runtime.clock.now()
    until = Micros(now + 10_000_000)
    queries.deploy("q", "one", standby="hot")
    row = hosting.claim(catalog, "q", QueryLease("a", 1, "host", until), now=now)
    assert row is not None
    row = hosting.update(catalog, "q", row.epoch, lambda row: replace(row, state="running"))
    hosting.refuse(catalog, row, "1@h", "no memory", now=now, standby=True)
    info = queries.get("q")
    assert (info.standby_state, info.standby_refused) == ("none", "host 1@h has no room: no memory")
    assert info.refused is None
    standby = QueryStandby("b", 2, "host", until, row.change)
    assert hosting.claim_standby(catalog, "q", standby, now=now)
    assert queries.get("q").standby_refused is None
    hosting.refuse(catalog, row, "3@h", "no memory", now=now, standby=True)  # it read the row before
    assert hosting.queries(catalog)[0].standby_refusal is None
    hosting.update_standby(catalog, "q", "b", lambda found: replace(found, refused="it uses rand"))
    info = queries.get("q")
    assert (info.standby_state, info.standby_refused) == ("refused", "it uses rand")
    queries.deploy("q", "one", standby="warm")
    assert queries.get("q").standby_refused is None


def test_other_needs_end_the_run_and_the_same_do_not(anywhere: Store) -> None:
    anywhere.queries.deploy("q", "one")
    (before,) = hosting.queries(anywhere.catalog)
    anywhere.queries.deploy("q", "one", cpus=before.needs.cpus)
    assert hosting.queries(anywhere.catalog) == [before]
    anywhere.queries.deploy("q", "one", group="billing")
    (after,) = hosting.queries(anywhere.catalog)
    assert (after.change, after.version, after.needs.group) == (before.change + 1, 1, "billing")
    for wrong in ({"group": "a/b"}, {"cpus": -1.0}, {"memory": "much"}):
        with pytest.raises(InvalidArgument):
            anywhere.queries.deploy("q", "one", **wrong)  # type: ignore[arg-type]
    assert hosting.queries(anywhere.catalog) == [after]
