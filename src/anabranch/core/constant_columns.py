"""Columns defined by one or two numbers, such as the offsets of a run of rows.

A reader adds three such columns to each batch. Writing them each time costs as much memory traffic as a fifth of a
payload of a hundred bytes. So long ones are slices of buffers shared between batches, where the values recur: a
segment's id does, and so do offsets and append times when segments are read side by side, since a commit has one append
time in all of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch import limits

_ROWS_MIN: Final = 4_096  # fewer rows are written directly: looking up a shared buffer costs more
_RUN_ROWS: Final = 2 * limits.READ_ROWS_MAX  # shared runs start at multiples of this
_INT64: Final = pa.int64()


def constant(value: int, count: int, kind: pa.DataType = _INT64, *, shared: bool = True) -> pa.Array:
    """`count` copies of one value, of a 64-bit type. `shared`: the same value is expected again soon."""
    if shared and _ROWS_MIN <= count <= limits.READ_ROWS_MAX:
        buffer = _constant(value, 1 << (count - 1).bit_length())
    else:
        buffer = _buffer(np.full(count, value, np.int64))
    return pa.Array.from_buffers(kind, count, [None, buffer])


def consecutive(first: int, count: int, *, shared: bool = False) -> pa.Array:
    """The `count` numbers from `first` on, int64. `shared`: numbers near these are expected again soon. Values that
    don't recur are better written each time, since memory freed a moment ago is still in the processor's cache."""
    number, skipped = divmod(first, _RUN_ROWS)
    if shared and count >= _ROWS_MIN and skipped + count <= _RUN_ROWS:
        return pa.Array.from_buffers(_INT64, count, [None, _run(number)], 0, skipped)
    return pa.Array.from_buffers(_INT64, count, [None, _buffer(np.arange(first, first + count))])


@lru_cache(maxsize=limits.SHARED_CONSTANTS_MAX)
def _constant(value: int, count: int) -> pa.Buffer:
    return _buffer(np.full(count, value, np.int64))


@lru_cache(maxsize=limits.SHARED_RUNS_MAX)
def _run(number: int) -> pa.Buffer:
    return _buffer(np.arange(number * _RUN_ROWS, (number + 1) * _RUN_ROWS))


def _buffer(values: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Buffer:
    values.flags.writeable = False
    return pa.py_buffer(values)
