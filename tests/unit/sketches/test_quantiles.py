"""KLL sketches against sorted numbers."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.sketches import hll, kll

ITEMS: tuple[kll.ItemType, ...] = ("bigint", "double", "float")
# As Spark 4.3 writes it: kll_sketch_agg_double of 1.0 and 1.0.
SPARK_ONES = bytes.fromhex(
    "05010f00c80008000200000000000000c8000100c6000000000000000000f03f000000000000f03f000000000000f03f000000000000f03f"
)


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.integers(0, 6_000), min_size=1, max_size=4).filter(any), st.sampled_from(ITEMS), st.integers(0, 1 << 30)
)
def test_ranks_of_merged_sketches_are_within_their_error(parts: list[int], item: kll.ItemType, seed: int) -> None:
    chance = random.Random(seed)
    kept = [[chance.randrange(1 << 20) for _ in range(size)] for size in parts]
    everything = sorted(number for part in kept for number in part)
    numbers = [part if item == "bigint" else [float(number) for number in part] for part in kept]
    merged = kll.union([kll.build(part, item) for part in numbers], item)
    n = len(everything)
    assert kll.count(merged, item) == n
    error = kll.rank_error(merged, item)
    assert error <= 0.0134
    allowed = 2 * error + 1e-9  # the error itself is exceeded once in a hundred
    for wanted in (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0):
        found = kll.quantile(merged, wanted, item)
        below, upto = bisect_right(everything, found - 1) / n, bisect_right(everything, found) / n
        assert below - allowed - 1 / n <= wanted <= upto + allowed
        assert abs(kll.rank(merged, found, item) - upto) <= allowed


def test_small_sketches_are_exact() -> None:
    sketch = kll.build([1, 2, 3, 4, None], "bigint")
    assert [kll.quantile(sketch, rank, "bigint") for rank in (0, 0.5, 1)] == [1, 2, 4]  # as Spark: inclusive
    assert kll.rank(sketch, 2, "bigint") == 0.5
    assert kll.rank_error(sketch, "bigint") == 0
    large = kll.build([(1 << 62) + 1], "bigint")
    assert kll.quantile(large, 0.5, "bigint") == (1 << 62) + 1
    assert kll.count(kll.build([1.0, math.nan, None], "double"), "double") == 1
    assert kll.build([1.0, 1.0], "double") == SPARK_ONES
    assert kll.count(kll.union([], "float"), "float") == 0


@pytest.mark.parametrize(
    ("values", "item"),
    [
        ([1, 2.9], "bigint"),
        ([1, "2"], "bigint"),
        ([1, True], "bigint"),
        ([1 << 63], "bigint"),
        ([1.0, "2"], "double"),
        ([1.0, 1e300], "float"),
        ([1 << 2_000], "double"),
    ],
)
def test_a_value_that_the_type_would_change_is_refused(values: list[object], item: kll.ItemType) -> None:
    with pytest.raises(InvalidArgument, match=r"KLL sketch \(.*takes numbers of that type"):
        kll.build(values, item)


def test_every_size_is_read_back() -> None:
    for item in ITEMS:
        for k in (8, 200):
            for size in (*range(30), 199, 200, 201, 5_000):
                values = range(size) if item == "bigint" else [float(value) for value in range(size)]
                assert kll.count(kll.build(values, item, k), item) == size


def test_what_is_no_such_sketch_is_refused() -> None:
    sketch, empty = kll.build(range(1_000), "bigint"), kll.build([], "bigint")
    for call, message in (
        (lambda: kll.count(b"rubbish-rubbish", "bigint"), "expected the bytes of a KLL sketch, found 15 bytes"),
        (lambda: kll.count(sketch, "float"), r"expected the bytes of a KLL \(float\) sketch"),
        (lambda: kll.count(hll.build([1]), "double"), "expected a KLL sketch, found an HLL sketch"),
        (lambda: kll.quantile(empty, 0.5, "bigint"), "is empty"),
        (lambda: kll.rank(empty, 1, "bigint"), "is empty"),
        (lambda: kll.quantile(sketch, 1.5, "bigint"), "from 0 to 1, not 1.5"),
        (lambda: kll.rank(sketch, math.nan, "bigint"), "expected a number to find the rank of"),
        (lambda: kll.build(["a"], "double"), "takes numbers of that type, not str"),
        (lambda: kll.build([1.5], "bigint"), "takes numbers of that type, not float"),
        (lambda: kll.build([1 << 70], "bigint"), "takes numbers of that type only"),
        (lambda: kll.build([1], "bigint", 7), "k is an integer from 8 to 65,535, not 7"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            call()


@pytest.mark.parametrize("item", ["double", "float"])
def test_integers_beyond_a_double_are_refused_as_ranks_and_values(item: kll.ItemType) -> None:
    sketch = kll.build([1.0, 2.0], item)
    with pytest.raises(InvalidArgument, match="fits a double"):
        kll.rank(sketch, 10**400, item)
    with pytest.raises(InvalidArgument, match="from 0 to 1"):
        kll.quantile(sketch, 10**400, item)
    assert kll.rank(kll.build([1, 2], "bigint"), 10**400, "bigint") == 1.0


@pytest.mark.parametrize("item", ["int", "", None, ["bigint"]])
def test_an_unknown_type_of_items_is_refused(item: Any) -> None:
    sketch = kll.build([1], "bigint")
    for call in (
        lambda: kll.build([1], item),
        lambda: kll.union([], item),
        lambda: kll.union([sketch], item, 200),
        lambda: kll.count(sketch, item),
        lambda: kll.quantile(sketch, 0.5, item),
    ):
        with pytest.raises(InvalidArgument, match="a KLL sketch is one of bigint, double, float"):
            call()
