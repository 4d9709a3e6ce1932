"""What becomes of appends above a rate."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.core.pace import BURST_S
from anabranch.core.shedding import Rejecting, Sampling, kept_rows, stride_of
from anabranch.model.load_policy import RejectAbove, SampleAbove
from anabranch.model.rate import Rate


def test_appends_above_the_rate_are_refused_until_the_time_that_is_said() -> None:
    load = Rejecting(RejectAbove(Rate(events_per_s=10)), 0.0)
    assert load.admit(int(10 * BURST_S), 0, 0.0) == 0.0
    wait_s = load.admit(1, 0, 0.0)
    assert 0 < wait_s <= 0.1
    assert load.admit(1, 0, wait_s + 1e-6) == 0.0
    now, passed = wait_s, 0
    while now < 100:
        if load.admit(1, 0, now):
            now += 0.01
        else:
            passed += 1
    assert passed == pytest.approx(1_000, rel=0.02)


def test_a_refused_append_counts_for_neither_limit() -> None:
    load = Rejecting(RejectAbove(Rate(events_per_s=1, bytes_per_s=1_000_000)), 0.0)
    load.admit(100, 10, 0.0)
    for _ in range(1_000):
        assert load.admit(1, 1_000_000, 0.0)
    assert load.admit(1, 10, 99.0) == 0.0


@pytest.mark.parametrize(("offered", "stride"), [(50, 1), (100, 1), (350, 4), (10_000, 128)])
def test_the_part_that_is_kept_follows_the_load(offered: int, stride: int) -> None:
    load = Sampling(SampleAbove(Rate(events_per_s=105)), 0.0)
    found = [load.stride(offered // 10, 0, step / 10) for step in range(1, 200)]
    assert found[-1] == stride
    assert load.stride(1, 0, 100.0) == 1  # once it is quiet again


def test_one_large_append_is_sampled_by_its_own_size() -> None:
    load = Sampling(SampleAbove(Rate(bytes_per_s=1_000)), 0.0)
    assert load.stride(1_000, 1_000_000, 0.0) == 512


def test_the_same_rows_are_kept_again_and_a_larger_stride_keeps_a_part_of_them() -> None:
    before = kept_rows(10_000, 1, 7, some=False)
    assert before.size == 10_000
    for stride in (2, 4, 8, 64, 1_024):
        kept = kept_rows(10_000, stride, 7, some=False)
        assert np.array_equal(kept, kept_rows(10_000, stride, 7, some=False))
        assert np.isin(kept, before).all()
        assert kept.size == pytest.approx(10_000 / stride, rel=0.35, abs=10)
        before = kept


def test_at_least_one_row_is_kept_if_asked_for_and_the_stride_is_found_again() -> None:
    for seed in range(50):
        for count in (1, 2, 100):
            least = kept_rows(count, 1 << 30, seed, some=True)
            assert least.size == 1
            for stride in (1, 2, 16, 1 << 20):
                kept = kept_rows(count, stride, seed, some=True)
                assert np.isin(least, kept).all()
                again = stride_of(count, kept.size, seed)
                assert np.array_equal(kept_rows(count, again, seed, some=True), kept)
    assert stride_of(4, 5, 1) == 0
