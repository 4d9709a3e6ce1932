"""Columns that a number or two tell are right, whether batches share them or not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from anabranch import limits
from anabranch.core.constant_columns import consecutive, constant
from anabranch.model.columns import TIME_TYPE

COUNTS = st.one_of(st.integers(0, 10), st.integers(4_000, 4_200), st.integers(60_000, limits.READ_ROWS_MAX + 2))
RUN = 2 * limits.READ_ROWS_MAX


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 40), COUNTS, st.booleans())
@example(RUN - 4_096, 4_096, True)
@example(RUN - 4_096, 4_097, True)
def test_offsets_rise_by_one_from_the_first_on(first: int, count: int, shared: bool) -> None:
    made = consecutive(first, count, shared=shared)
    made.validate(full=True)
    assert made.type == pa.int64()
    assert np.array_equal(made.to_numpy(), np.arange(first, first + count))


@settings(max_examples=40, deadline=None)
@given(st.integers(-(1 << 62), 1 << 62), COUNTS, st.booleans())
def test_a_constant_is_the_same_in_each_row(value: int, count: int, shared: bool) -> None:
    made = constant(value, count, TIME_TYPE, shared=shared)
    made.validate(full=True)
    assert made.type == TIME_TYPE
    assert np.array_equal(made.cast(pa.int64()).to_numpy(), np.full(count, value))


def test_what_comes_again_is_written_once() -> None:
    def places(*columns: pa.Array) -> set[int]:
        return {column.buffers()[1].address for column in columns}

    assert len(places(constant(7, 5_000), constant(7, 6_000))) == 1
    assert len(places(consecutive(RUN + 10, 5_000, shared=True), consecutive(RUN + 20, 9_000, shared=True))) == 1
    alone = (
        constant(7, 5_000, shared=False),
        constant(7, 5_000, shared=False),
        consecutive(10, 5_000),
        consecutive(10, 5_000),
    )
    assert len(places(*alone)) == 4
