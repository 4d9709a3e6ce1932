"""Top-k and count-min sketches and Bloom filters against exact counts and sets, and what is no sketch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.sketches import bloom, count_min, theta, top_k

# As Spark 4.3 writes them. count_min_sketch(x, 0.5, 0.5, 7) of 'a', 'a' and 'naïve', and of 5, 5 and -7.
SPARK_COUNT_MIN_TEXTS = bytes.fromhex(
    "0000000100000000000000030000000100000004000000005d878bcc00000000000000000000000000000002000000000000"
    "00000000000000000001"
)
SPARK_COUNT_MIN_INTEGERS = bytes.fromhex(
    "0000000100000000000000030000000100000004000000005d878bcc00000000000000000000000000000003000000000000"
    "00000000000000000000"
)
# approx_top_k_accumulate of 'a', 'a' and 'naïve' with 6 items, and of nothing.
SPARK_TOP_K = bytes.fromhex(
    "04010a0303000000020000000000000003000000000000000000000000000000010000000000000002000000000000000600"
    "00006e61c3af766501000000610000000000000001"
)
SPARK_EMPTY_TOP_K = bytes.fromhex("01010a0e030500000000000000000001")

VALUES = st.lists(st.integers(-3, 300).map(lambda n: n * n), max_size=400)


@settings(deadline=None, max_examples=40)
@given(st.lists(VALUES, min_size=1, max_size=3), st.booleans())
def test_merged_sketches_hold_the_exact_counts_within_their_bounds(parts: list[list[int]], as_text: bool) -> None:
    batches: list[list[int] | list[str]] = [[str(n) for n in part] if as_text else part for part in parts]
    exact = Counter(value for batch in batches for value in batch)
    total = exact.total()

    counts = count_min.union([count_min.build(batch, 0.05, 0.9, 1) for batch in batches])
    assert count_min.count(counts) == total
    assert count_min.error(counts) == pytest.approx(0.05 * total)
    assert all(number <= count_min.estimate(counts, value) <= total for value, number in exact.items())
    wrong = [value for value, n in exact.items() if count_min.estimate(counts, value) > n + count_min.error(counts)]
    assert len(wrong) <= 0.1 * len(exact) + 1

    item: top_k.ItemType = "string" if as_text else "bigint"
    frequent = top_k.union([top_k.build(batch, 24) for batch in batches if batch], item, 24)
    error = top_k.error(frequent, item)
    assert top_k.count(frequent, item) == total
    found = top_k.frequent(frequent, 1_000, item)
    assert all(each.lower <= exact[each.item] <= each.upper for each in found)
    assert all(each.upper - each.lower <= error and each.count == each.upper for each in found)
    # Whatever occurs more than twice as often as the sketch may be wrong is there.
    assert {value for value, number in exact.items() if number > 2 * error} <= {each.item for each in found}

    filled = bloom.union([bloom.build(batch, 3) for batch in batches], 3)
    assert all(bloom.contains(filled, value) for value in exact)
    assert abs(bloom.estimate(filled) - len(exact)) <= 0.02 * len(exact) + 1


def test_a_filter_says_how_often_it_is_wrong() -> None:
    for parts, count in ((8, 27_000), (4, 13_500), (1, 5_000), (16, 54_000)):
        filled = bloom.build((f"was-{n}" for n in range(count)), parts)
        wrong = sum(bloom.contains(filled, f"was-not-{n}") for n in range(20_000)) / 20_000
        assert wrong == pytest.approx(bloom.error(filled), rel=0.3)
        assert bloom.estimate(filled) == pytest.approx(count, rel=0.02)
        if parts > 1:
            assert bloom.error(filled) <= 0.0105


def test_the_bytes_are_those_of_spark() -> None:
    texts, integers = ["a", "naïve", None, "a"], [5, -7, None, 5]
    assert count_min.build(texts, 0.5, 0.5, 7) == SPARK_COUNT_MIN_TEXTS
    assert count_min.build(integers, 0.5, 0.5, 7) == SPARK_COUNT_MIN_INTEGERS
    assert count_min.build({"a": 2, "naïve": 1}, 0.5, 0.5, 7) == SPARK_COUNT_MIN_TEXTS
    found = top_k.frequent(SPARK_TOP_K, 9, "string")
    assert found == [top_k.Frequent("a", 2, 2, 2), top_k.Frequent("naïve", 1, 1, 1)]
    assert found == top_k.frequent(top_k.build(texts, 6), 9, "string")
    assert top_k.frequent(SPARK_EMPTY_TOP_K, 9, "string") == top_k.frequent(top_k.build([]), 9, "string") == []
    assert bloom.build([12, None]) == bloom.build(["12"]) != bloom.build(["13"])


@pytest.mark.parametrize(
    "values",
    [[1, True], [1, 1.0], [1.0, 1], ["a", b"a"], [[1]], {"a": -1}, {"a": 1.5}, {"a": None}, {"a": "x"}, {"a": 1 << 63}],
    ids=str,
)
def test_what_can_not_be_counted_is_refused(values: Any) -> None:
    with pytest.raises(InvalidArgument):
        count_min.build(values, 0.1, 0.9, 1)
    with pytest.raises(InvalidArgument):
        top_k.build(values)


def test_counts_may_be_of_any_integer_type() -> None:
    counts = Counter({"a": 2, "b": 1})
    assert top_k.build({"a": np.int64(2), "b": True}) == top_k.build(counts) == top_k.build(["a", None, "b", "a"])
    assert count_min.build({"a": np.int64(2), "b": True}, 0.1, 0.9, 1) == count_min.build(counts, 0.1, 0.9, 1)


def test_what_is_no_such_sketch_is_refused() -> None:
    counts, filled = count_min.build(["a"], 0.1, 0.9, 1), bloom.build(["a"])
    for call, message in (
        (lambda: count_min.estimate(b"", "a"), "expected the bytes of a count-min sketch, found 0 bytes"),
        (lambda: count_min.count(counts[:-1]), "expected the bytes of a count-min sketch"),
        (lambda: count_min.count(filled), "expected the bytes of a count-min sketch"),
        (lambda: count_min.union([counts, count_min.build(["a"], 0.1, 0.9, 2)]), "another eps, confidence or seed"),
        (lambda: count_min.union([]), "at least one count-min sketch"),
        (lambda: count_min.estimate(counts, 1.5), "takes integers, text or bytes"),
        (lambda: count_min.estimate(counts, None), "null"),
        (lambda: count_min.build(["a"], 0, 0.9, 1), "eps is a number"),
        (lambda: count_min.build(["a"], 1e-9, 0.9, 1), "cells"),
        (lambda: top_k.frequent(theta.build(["a"]), 1, "string"), "expected a top-k sketch, found a theta sketch"),
        (lambda: top_k.frequent(SPARK_TOP_K, 1, "bigint"), "expected the bytes of a top-k sketch"),
        (lambda: top_k.frequent(SPARK_TOP_K, 0, "string"), "k is an integer from 1"),
        (lambda: top_k.build(["a", 1]), "one type|takes"),
        (lambda: bloom.contains(b"rubbish", "a"), "expected the bytes of a Bloom sketch"),
        (lambda: bloom.contains(filled, 1.5), "takes integers, text or bytes"),
        (lambda: bloom.union([filled, bloom.build(["a"], 2)]), "of 8 and of 2 parts"),
        (lambda: bloom.build(["a"], 257), "parts is an integer from 1 to 256"),
        (lambda: bloom.contains(filled[:-8], "a"), "expected the bytes of a Bloom sketch"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            call()  # type: ignore[no-untyped-call]


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_sketches_are_refused_or_read_and_never_crash(data: st.DataObject) -> None:
    values = [str(n % 7) for n in range(data.draw(st.sampled_from([0, 1, 5, 200])))]
    made = data.draw(
        st.sampled_from([top_k.build(values, 5), count_min.build(values, 0.3, 0.7, 1), bloom.build(values, 1)])
    )
    damaged = bytearray(made)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, min(len(damaged), 90) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))] if data.draw(st.booleans()) else damaged
    for read in (
        lambda sketch: top_k.frequent(top_k.union([sketch, sketch], "string"), 3, "string"),
        lambda sketch: top_k.frequent(top_k.union([sketch, sketch], "bigint"), 3, "bigint"),
        lambda sketch: top_k.frequent(top_k.union([sketch, sketch], "double"), 3, "double"),
        lambda sketch: count_min.estimate(count_min.union([sketch, sketch]), "1"),
        lambda sketch: bloom.contains(bloom.union([sketch, sketch]), "1"),
    ):
        try:
            read(bytes(damaged))
        except InvalidArgument:
            continue
