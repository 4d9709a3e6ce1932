"""Limits of principals and of all together."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.core.pace import BURST_S
from anabranch.errors import RateLimited
from anabranch.runtime.ports import Runtime
from anabranch.security.quotas import Quota, QuotaKeeper, Quotas
from anabranch.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def keeper(clock: ManualClock, **quotas: Any) -> QuotaKeeper:
    return QuotaKeeper(Quotas(**{"total": Quota(), **quotas}), Runtime(clock=clock))


def test_calls_beyond_the_rate_are_refused_until_the_time_that_the_error_says(clock: ManualClock) -> None:
    kept = keeper(clock, each=Quota(calls_per_s=10))
    for _ in range(int(10 * BURST_S)):
        kept.admit("a", 1, 0)
    with pytest.raises(RateLimited, match="10 calls per second of 'a'") as refused:
        kept.admit("a", 1, 0)
    kept.admit("b", 1, 0)
    assert refused.value.retry_after_s > 0
    clock.pass_time(int(refused.value.retry_after_s * 1e6) + 1)
    kept.admit("a", 1, 0)


def test_over_a_long_time_no_more_than_the_rate_passes(clock: ManualClock) -> None:
    kept, passed = keeper(clock, each=Quota(bytes_per_s=1000)), 0
    for _ in range(10_000):
        clock.pass_time(10_000)
        try:
            kept.admit("a", 1, 300)
            passed += 300
        except RateLimited:
            pass
    assert 100_000 <= passed <= 100_000 + 1000 * BURST_S + 300


def test_one_request_larger_than_the_burst_passes_and_the_next_waits_for_it(clock: ManualClock) -> None:
    kept = keeper(clock, each=Quota(bytes_per_s=100))
    kept.admit("a", 1, 1_200)
    with pytest.raises(RateLimited) as refused:
        kept.admit("a", 1, 1)
    assert refused.value.retry_after_s == pytest.approx(10.0)


def test_the_total_binds_all_together_and_a_refusal_counts_nothing(clock: ManualClock) -> None:
    kept = keeper(clock, each=Quota(calls_per_s=100), total=Quota(bytes_per_s=10))
    kept.admit("a", 1, 20)
    for _ in range(500):
        with pytest.raises(RateLimited, match="all callers together"):
            kept.admit("b", 1, 1)
    clock.pass_time(100_000)
    kept.admit("b", 1, 1)


def test_what_is_held_is_limited_until_it_is_released(clock: ManualClock) -> None:
    kept = keeper(clock, each=Quota(followers=2, memory=100), total=Quota(followers=3))
    first, second = kept.hold("a", "followers", 1), kept.hold("a", "followers", 1)
    with pytest.raises(RateLimited, match="2 open followers of 'a'"):
        kept.hold("a", "followers", 1)
    with kept.hold("b", "followers", 1), pytest.raises(RateLimited, match="3 open followers of all"):
        kept.hold("c", "followers", 1)
    first.release()
    first.release()
    assert kept.held() == {"followers": 1}
    kept.hold("a", "followers", 1).release()
    second.release()
    with pytest.raises(RateLimited, match="100 bytes of memory"):
        kept.hold("a", "memory", 101)
    assert kept.held() == {}


def test_a_named_principal_has_its_own_limits(clock: ManualClock) -> None:
    kept = keeper(clock, each=Quota(followers=0), named={"vip": Quota(followers=1)})
    kept.hold("vip", "followers", 1)
    with pytest.raises(RateLimited):
        kept.hold("a", "followers", 1)


def test_accounts_of_many_principals_are_bounded_and_holders_are_kept(clock: ManualClock) -> None:
    kept = keeper(clock, each=Quota(followers=1))
    held = kept.hold("holder", "followers", 1)
    for number in range(10_100):
        kept.hold(f"p{number}", "followers", 1).release()
    assert len(kept._accounts) <= 10_001
    with pytest.raises(RateLimited):
        kept.hold("holder", "followers", 1)
    held.release()
