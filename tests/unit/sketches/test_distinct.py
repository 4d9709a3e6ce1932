"""HLL and theta sketches against exact sets, and what is no sketch."""

from __future__ import annotations

from itertools import pairwise

import pytest
from datasketches import HLL_4, hll_sketch, update_theta_sketch
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.sketches import hll, kll, theta

# As Spark 4.3 writes them: hll_sketch_agg and theta_sketch_agg of the numbers 0 and 1.
SPARK_EMPTY_HLL = bytes.fromhex("0201070c03040008" + "00" * 32)
SPARK_THETA = bytes.fromhex("0104033d011acc93022d0c35ee5befc8aea8be82c8b8dcb400")

sizes = st.sampled_from([0, 1, 7, 8, 9, 100, 3_000, 30_000])


@settings(deadline=None, max_examples=30)
@given(st.lists(sizes, max_size=4), st.sampled_from([4, 10, 12]))
def test_merged_sketches_estimate_the_union_within_their_bounds(parts: list[int], lg_k: int) -> None:
    starts = [0]
    for size in parts:
        starts.append(starts[-1] + size // 2)  # each part shares half of its values with the next
    ranges = [range(start, start + size) for start, size in zip(starts, parts, strict=False)]
    exact = len(set().union(*ranges))
    merged = hll.union([hll.build(part, lg_k) for part in ranges])
    lower, upper = hll.bounds(merged, 3)
    assert lower <= exact * 1.001 and exact <= upper * 1.001
    assert lower <= hll.estimate(merged) + 1 and hll.estimate(merged) <= upper + 1
    merged = theta.union([theta.build(part, max(lg_k, 5)) for part in ranges])
    lower, upper = theta.bounds(merged, 3)
    assert lower <= exact <= upper


@settings(deadline=None, max_examples=30)
@given(sizes, sizes, sizes)
def test_theta_set_operations_hold_the_exact_answer_within_their_bounds(left: int, shared: int, right: int) -> None:
    first, second = range(left + shared), range(left, left + shared + right)
    a, b = theta.build(first), theta.build(second)
    for result, exact in (
        (theta.union([a, b]), left + shared + right),
        (theta.intersection([a, b]), shared),
        (theta.difference(a, b), left),
    ):
        lower, upper = theta.bounds(result, 3)
        assert lower <= exact <= upper
        if left + shared <= 4_096 and shared + right <= 4_096 and left + shared + right <= 4_096:
            assert theta.estimate(result) == exact


def test_the_standard_error_of_many_sketches_is_the_stated_one() -> None:
    for build, estimate, stated in ((hll.build, hll.estimate, 1.04 / 64), (theta.build, theta.estimate, 1 / 64)):
        errors = [estimate(build(range(n * 10_000, (n + 1) * 10_000))) / 10_000 - 1 for n in range(30)]
        assert (sum(each * each for each in errors) / len(errors)) ** 0.5 <= 1.5 * stated


def test_values_hash_as_in_spark() -> None:
    assert hll.build([]) == hll.union([None]) == SPARK_EMPTY_HLL
    assert theta.build([0, 1]) == SPARK_THETA
    assert theta.estimate(theta.difference(SPARK_THETA, theta.build([1]))) == 1
    assert theta.build([b"ab", None]) == theta.build(["ab"])
    assert hll.estimate(hll.build(["a", "b", "a", ""])) == 2  # as in Spark, an empty text is no value


def test_every_size_of_an_hll_sketch_is_read_back() -> None:
    for lg_k in (4, 8, 12):
        for size in (*range(40), 200, 1_500, 50_000):
            sketch = hll_sketch(lg_k)
            for value in range(size):
                sketch.update(value)
            for data in (sketch.serialize_compact(), sketch.serialize_updatable()):
                assert hll.estimate(data) == round(sketch.get_estimate())


def test_what_is_no_such_sketch_is_refused() -> None:
    good = hll.build(range(100))
    four_bits = hll_sketch(12, HLL_4)
    other_seed = update_theta_sketch(12, 1.0, 1)
    for value in range(5_000):
        four_bits.update(value)
        other_seed.update(value)
    for call, message in (
        (lambda: hll.estimate(b""), "expected the bytes of an HLL sketch, found 0 bytes that are none"),
        (lambda: hll.estimate(b"rubbish-rubbish"), "found 15 bytes that are none"),
        (lambda: hll.estimate("text"), "expected the bytes of an HLL sketch, found str"),  # type: ignore[arg-type]
        (lambda: hll.estimate(theta.build([1])), "expected an HLL sketch, found a theta sketch"),
        (lambda: theta.estimate(good), "expected a theta sketch, found an HLL sketch"),
        (lambda: theta.union([kll.build([1], "bigint")]), "expected a theta sketch, found a KLL sketch"),
        (lambda: hll.union([good, hll.build([1], 10)]), "different lgConfigK, 12 and 10"),
        (lambda: hll.estimate(four_bits.serialize_compact()), r"8 bits a register \(HLL_8\)"),
        (lambda: theta.estimate(other_seed.compact().serialize()), "another seed than 9001"),
        (lambda: hll.build([1.5]), "takes integers, text or bytes, not float"),
        (lambda: hll.build([1, "a"]), "values of one type, found int and str"),
        (lambda: hll.build([1 << 64]), "integers of 64 bits"),
        (lambda: hll.build([b"\xff"]), "UTF-8"),
        (lambda: hll.build([1], 30), "lgConfigK is an integer from 4 to 21, not 30"),
        (lambda: hll.bounds(good, 4), "standard deviations is an integer from 1 to 3"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            call()
    assert hll.estimate(hll.union([good, hll.build([1], 10)], allow_different_lg_k=True)) == 100


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_sketches_are_refused_or_read_and_never_crash(data: st.DataObject) -> None:
    """DataSketches itself ends the process on some of these."""
    size = data.draw(sizes.filter(lambda size: size < 10_000))
    made = data.draw(
        st.sampled_from([hll.build(range(size)), theta.build(range(size)), kll.build(range(size), "bigint")])
    )
    damaged = bytearray(made)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, min(len(damaged), 60) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged
    for read in (
        lambda sketch: hll.union([sketch, sketch], allow_different_lg_k=True),
        lambda sketch: theta.difference(theta.union([sketch]), sketch),
        lambda sketch: kll.quantile(kll.union([sketch, sketch], "bigint"), 0.5, "bigint"),
        lambda sketch: kll.quantile(kll.union([sketch, sketch], "double"), 0.5, "double"),
        lambda sketch: kll.quantile(kll.union([sketch, sketch], "float"), 0.5, "float"),
    ):
        try:
            read(bytes(damaged))
        except InvalidArgument:
            continue


def test_the_union_of_windows_is_the_sketch_of_all_of_them() -> None:
    bounds = [0, 10, 500, 501, 9_000]
    windows = [hll.build(range(low, high)) for low, high in pairwise(bounds)]
    exact = bounds[-1]
    assert abs(hll.estimate(hll.union(windows)) - exact) <= 0.05 * exact
