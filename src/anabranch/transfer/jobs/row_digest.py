"""Digests of rows: equal for rows with equal values, and different for others except with probability 2**-128.

Numbers are equal whatever their width; NaN equals NaN, null equals null, and 0.0 is not -0.0. Numbers and times are
mixed by the finaliser of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), in two
streams of 64 bits. For other types it is xxh3-128 of the value's bytes, computed once per distinct value of a batch.
Times inside nested values are compared as the numbers that store them: Python's times hold neither all of their digits
nor all of their years.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

Words = np.ndarray[Any, np.dtype[np.uint64]]

_SEEDS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_NULL = np.uint64(0x5851F42D4C957F2D)


def row_digests(batch: pa.RecordBatch) -> tuple[Words, Words]:
    """Two 64-bit words for each row of the batch, from the values of all its columns, in order."""
    words = [np.full(batch.num_rows, seed) for seed in _SEEDS]
    for column in batch.columns:
        first, second = _column(column)
        for index, of_column in enumerate((first, second)):
            words[index] = _mix(words[index] * np.uint64(0x2545F4914F6CDD1D) + _mix(of_column ^ _SEEDS[index]))
    return words[0], words[1]


def _column(column: pa.Array) -> tuple[Words, Words]:
    """Two words for each value; for numbers and times both are the value's bits."""
    kind = column.type
    simple = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind)
    if simple and not pa.types.is_interval(kind):
        values = _bits(column)
        first, second = values, values
    else:
        first, second = _by_value(column)
    if column.null_count:
        missing = np.asarray(column.is_null().to_numpy(zero_copy_only=False))
        first, second = np.where(missing, _NULL, first), np.where(missing, ~_NULL, second)
    return first, second


def _bits(column: pa.Array) -> Words:
    if pa.types.is_floating(column.type):
        floats = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        one_nan: Words = np.where(np.isnan(floats), np.nan, floats).view(np.uint64)  # one bit pattern for every NaN
        return one_nan
    width = column.type.bit_width
    filled = column.view(getattr(pa, f"int{width}")()) if not pa.types.is_integer(column.type) else column
    filled = pc.fill_null(filled, pa.scalar(0, filled.type))
    values = np.asarray(filled.to_numpy(zero_copy_only=False))
    words: Words = values.astype(np.int64, copy=False).view(np.uint64) if values.dtype != np.uint64 else values
    return words


def _by_value(column: pa.Array) -> tuple[Words, Words]:
    try:
        encoded = column.dictionary_encode()
        values, indices = (
            encoded.dictionary,
            np.asarray(pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)),
        )
    except pa.ArrowNotImplementedError:  # nested values
        values, indices = column.cast(_with_numbers(column.type)), np.arange(len(column))
    digests = [xxhash.xxh3_128_intdigest(_bytes(value)) for value in values]
    if not digests:  # only nulls
        digests = [0]
    low = np.array([digest & 0xFFFFFFFFFFFFFFFF for digest in digests], dtype=np.uint64)
    high = np.array([digest >> 64 for digest in digests], dtype=np.uint64)
    return low[indices], high[indices]


def _with_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with integers in place of times, also within others."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_numbers(kind.key_type), _with_numbers(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_with_numbers(kind.value_type))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def _bytes(value: pa.Scalar) -> bytes:
    plain = value.as_py()
    if isinstance(plain, bytes):
        return plain
    return plain.encode() if isinstance(plain, str) else repr(plain).encode()


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Words = words ^ (words >> np.uint64(31))
    return mixed
