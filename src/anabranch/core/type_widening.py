"""Type widening: the type of a column when streams with different types for it are joined, and the conversion of stored
values."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import SchemaMismatch
from anabranch.model.times import UNITS_NS

_SIGNED: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_UNSIGNED: Final = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_FLOATS: Final = (pa.float16(), pa.float32(), pa.float64())
_DIGITS_MAX: Final = 38  # maximum of a decimal128
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 20}  # maximum of an integer, by its bits
_EXACT_BITS: Final = {16: 11, 32: 24, 64: 53}  # bits of the integers that a float holds exactly, by its width in bits


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds every value of both exactly; None if there is none.

    Integers widen to larger ones, to floats that hold all of them, and to decimals; floats and decimals to larger ones;
    lists by their values. Times, texts and booleans don't widen.
    """
    if one.equals(other):
        return one
    types = pa.types
    if types.is_list(one) and types.is_list(other):
        inner = wider(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    if types.is_floating(one) and types.is_floating(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    if types.is_integer(one) and types.is_integer(other):
        return _wider_integer(one, other)
    if types.is_integer(other):
        one, other = other, one
    if types.is_integer(one):
        return _wider_than_integer(one, other)
    if types.is_decimal(one) and types.is_decimal(other):
        return _decimal(max(one.precision - one.scale, other.precision - other.scale), max(one.scale, other.scale))
    return None


def _wider_integer(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    bits = max(one.bit_width, other.bit_width)
    signed = pa.types.is_signed_integer(one), pa.types.is_signed_integer(other)
    if signed[0] == signed[1]:
        return next(kind for kind in (_SIGNED if signed[0] else _UNSIGNED) if kind.bit_width == bits)
    unsigned = other if signed[0] else one
    # A signed type holds an unsigned one of half its bits.
    return next((kind for kind in _SIGNED if kind.bit_width >= bits and kind.bit_width > unsigned.bit_width), None)


def _wider_than_integer(integer: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    if pa.types.is_decimal(other):
        return _decimal(max(_DIGITS[integer.bit_width], other.precision - other.scale), other.scale)
    if pa.types.is_floating(other):
        bits = integer.bit_width - pa.types.is_signed_integer(integer)
        fits = (kind for kind in _FLOATS if _EXACT_BITS[kind.bit_width] >= bits and kind.bit_width >= other.bit_width)
        return next(fits, None)
    return None


def _decimal(digits: int, scale: int) -> pa.DataType | None:
    return pa.decimal128(digits + scale, scale) if digits + scale <= _DIGITS_MAX else None


def as_type(column: pa.Array, field: pa.Field) -> pa.Array:
    """A stored column as the requested type. Raises SchemaMismatch if a value does not fit, because the column was
    widened after the requested type was looked up."""
    if column.type.equals(field.type):
        return column
    if column.null_count == len(column):  # of a stream that shares these bytes, and added this column later
        return pa.nulls(len(column), field.type)
    # Times of attached files may be finer than the stored type: attaching either refused times that would lose digits,
    # or was set to truncate them.
    times = pa.types.is_timestamp(column.type) and pa.types.is_timestamp(field.type)
    try:
        return (cut_times(column, field.type.unit) if times else column).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise SchemaMismatch(
            f"column '{field.name}' holds {column.type} that does not fit {field.type}: it was widened since this was opened, so "
            "open it again",
            column=field.name,
        ) from exc


def cut_times(times: pa.Array | pa.ChunkedArray, unit: str) -> pa.Array | pa.ChunkedArray:
    """Times with their digits beyond `unit` cut off; those of a coarser unit as they are. Before 1970 too this is the
    time before, as for texts and datetimes; Arrow's cast gives the time after."""
    ratio = UNITS_NS[unit] // UNITS_NS[times.type.unit]
    if ratio <= 1:
        return times
    counts = times.cast(pa.int64())
    quotients = pc.divide(counts, ratio)
    cut = pc.less(counts, pc.multiply(quotients, ratio))
    return pc.subtract(quotients, cut.cast(pa.int64())).cast(pa.timestamp(unit, times.type.tz))
