"""Which queries a host takes, and what it says of those that it leaves."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from anabranch import limits
from anabranch.catalog.state.query import QueryNeeds, QueryRefusal, QueryRow, QueryStandby
from anabranch.deployments.admission import (
    HostCapacity,
    drivers_that_fit,
    is_announced,
    refusal,
    refused_text,
    standby_refused_text,
)
from anabranch.model.ids import Micros

GB = 1_000_000_000
SECOND = 1_000_000
NEEDS = st.builds(
    QueryNeeds,
    st.sampled_from(["default", "billing"]),
    st.integers(0, 20).map(lambda tenths: tenths / 10),
    st.integers(0, 3 * GB),
)


@given(st.lists(NEEDS, max_size=20), st.integers(0, 40).map(lambda tenths: tenths / 10), st.integers(0, 12 * GB))
def test_a_host_never_sets_aside_more_than_it_has(wanted: list[QueryNeeds], cpus: float, memory: int) -> None:
    capacity = HostCapacity(cpus, memory)
    held: list[QueryNeeds] = []
    for needs in wanted:
        groups = {each.group for each in held}
        new_driver = needs.group not in groups
        if refusal(capacity, held, needs, drivers=len(groups), new_driver=new_driver) is None:
            held.append(needs)
        else:  # and it leaves nothing for which there is room
            drivers = len(groups | {needs.group})
            taken = drivers * limits.DRIVER_BYTES + sum(each.memory for each in (*held, needs))
            assert sum(each.cpus for each in (*held, needs)) > cpus + 1e-9 or taken > memory
    drivers = len({each.group for each in held})
    assert sum(each.cpus for each in held) <= cpus + 1e-6
    assert sum(each.memory for each in held) + drivers * limits.DRIVER_BYTES <= memory or not held


def test_a_refusal_says_what_is_missing() -> None:
    capacity = HostCapacity(2, 4 * GB, frozenset({"default"}))
    held = [QueryNeeds(cpus=1.5, memory=2 * GB)]

    def of(needs: QueryNeeds, *, new_driver: bool = False) -> str | None:
        return refusal(capacity, held, needs, drivers=1, new_driver=new_driver)

    assert of(QueryNeeds(cpus=0.5)) is None
    assert of(QueryNeeds(cpus=1)) == "the query needs 1 processors, and 0.5 of 2 are free"
    assert of(QueryNeeds(memory=GB)) == "the query needs 1.0 GB of memory, and 600.0 MB of 4.0 GB are free"
    assert of(QueryNeeds(), new_driver=True) == (
        "the query needs 1.6 GB of memory, 1.4 GB of it for a driver, and 600.0 MB of 4.0 GB are free"
    )
    assert of(QueryNeeds("billing")) == "it does not serve the group 'billing'"
    assert [drivers_that_fit(capacity, held, each) for each in (0, 1, 2)] == [1, 0, 0]
    assert drivers_that_fit(capacity, [], 1) == 1


def test_a_refusal_is_announced_once_by_one_host_until_it_is_old() -> None:
    assert not is_announced(None, "a", "full", 0)
    told = QueryRow("q", Micros(0), Micros(0), "running", 1, 1, refusal=QueryRefusal("a", "full", Micros(0)))
    assert is_announced(told.refusal, "a", "full", 10 * SECOND)
    assert not is_announced(told.refusal, "a", "full", 16 * SECOND)  # renewed
    assert not is_announced(told.refusal, "a", "fuller", SECOND)
    assert is_announced(told.refusal, "b", "full too", 30 * SECOND)
    assert not is_announced(told.refusal, "b", "full too", 31 * SECOND)
    assert refused_text(told, 10 * SECOND) == "host a has no room: full"
    assert refused_text(told, 31 * SECOND) is None


def test_why_a_query_has_no_hot_standby_is_known_while_it_wants_one() -> None:
    left = QueryRefusal("a", "full", Micros(0))
    row = QueryRow("q", Micros(0), Micros(0), "running", 1, 1, standby="hot", standby_refusal=left)
    assert standby_refused_text(row, 10 * SECOND) == "host a has no room: full"
    assert standby_refused_text(row, 31 * SECOND) is None
    for other in (replace(row, standby="warm"), replace(row, wanted="stopped")):
        assert standby_refused_text(other, 10 * SECOND) is None
    standby = QueryStandby("t", 1, "h", Micros(20 * SECOND), 1)
    assert standby_refused_text(replace(row, hot_standby=standby), 10 * SECOND) is None
    refused = replace(row, hot_standby=replace(standby, refused="it uses rand"))
    assert standby_refused_text(refused, 10 * SECOND) == "it uses rand"
    assert standby_refused_text(refused, 21 * SECOND) == "host a has no room: full"
