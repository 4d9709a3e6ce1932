"""The sizes of all runs of a batch at once are those that Arrow tells one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from anabranch.writing.routes import run_sizes

_COUNT = 1_000
_STARTS = np.array([0, 1, 1, 300, 999])
_STOPS = np.array([1, 1, 300, 999, 1_000])


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(columns)


def _sizes_one_by_one(batch: pa.RecordBatch) -> list[int]:
    return [batch.slice(a, b - a).nbytes for a, b in zip(_STARTS.tolist(), _STOPS.tolist(), strict=True)]


def test_sizes_are_those_of_arrow_up_to_a_bit() -> None:
    batch = _batch(
        text=pa.array([None if n % 7 == 0 else "x" * (n % 13) for n in range(_COUNT)]),
        data=pa.array([b"y" * (n % 5) for n in range(_COUNT)]),
        number=pa.array(range(_COUNT), pa.int32()),
        truth=pa.array([n % 2 == 0 for n in range(_COUNT)]),
        time=pa.array(range(_COUNT), pa.timestamp("us", tz="UTC")),
    )
    for each in (batch, batch.slice(0), pa.concat_batches([batch.slice(0, 100), batch.slice(100)])):
        sizes = run_sizes(each, _STARTS, _STOPS)
        assert sizes is not None
        expected = _sizes_one_by_one(each)
        # Bits that share a byte with their neighbours' are counted either way.
        assert all(abs(found - wanted) <= 4 for found, wanted in zip(sizes.tolist(), expected, strict=True))


def test_a_batch_that_is_itself_a_slice_is_measured_from_its_own_rows() -> None:
    whole = _batch(text=pa.array(["x" * (n % 13) for n in range(2 * _COUNT)]))
    part = whole.slice(500, _COUNT)
    sizes = run_sizes(part, _STARTS, _STOPS)
    assert sizes is not None
    for found, wanted, start, stop in zip(sizes.tolist(), _sizes_one_by_one(part), _STARTS, _STOPS, strict=True):
        assert found == wanted, (start, stop)


def test_nested_columns_are_left_to_arrow() -> None:
    assert run_sizes(_batch(a=pa.array([[1, 2], [3]])), np.array([0]), np.array([1])) is None
