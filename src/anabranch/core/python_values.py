"""The values of Arrow columns as Python has them, without loss, for formats of text such as JSON."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DAY_S: Final = 86_400
_WRITTEN_S: Final = (
    -1_096_193_779_200,
    971_890_963_200,
)  # the years -32767 to 32767, all that Arrow can write; half-open


def python_values(column: pa.Array) -> list[Any]:
    """As `to_pylist`. Times, dates and durations that are finer than µs, or beyond the range of Python's classes, are
    ISO 8601 text, also inside of lists, structs and maps; those beyond Arrow's range (`unwritten_times`) are integers."""
    if not _has_nanoseconds(column.type):
        try:
            return list(column.to_pylist())
        except OverflowError:
            pass
    return [_value(each) for each in column]


def unwritten_times(column: pa.Array) -> pa.Array | None:
    """Which timestamps or dates are beyond the year 32,767 before or after Christ, and so have no text; None if none is."""
    data = column.buffers()[1]
    if not len(column) or data is None:
        return None
    kind = column.type
    if kind.bit_width == 32:  # days
        numbers, (low, high) = np.frombuffer(data, np.int32), (each // _DAY_S for each in _WRITTEN_S)
    else:
        per_second = _PER_SECOND["ms" if pa.types.is_date(kind) else kind.unit]
        numbers, (low, high) = np.frombuffer(data, np.int64), (each * per_second for each in _WRITTEN_S)
    numbers = numbers[column.offset : column.offset + len(column)]
    if low <= int(np.minimum.reduce(numbers)) and int(np.maximum.reduce(numbers)) < high:
        return None
    found = pc.and_(column.is_valid(), pa.array((numbers < low) | (numbers >= high)))
    return found if found.true_count else None


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_temporal(kind):
        return getattr(kind, "unit", None) == "ns"
    return any(_has_nanoseconds(kind.field(at).type) for at in range(kind.num_fields))


def _value(scalar: pa.Scalar) -> Any:
    kind, types = scalar.type, pa.types
    if not scalar.is_valid:
        return None
    if types.is_struct(kind):
        return {field.name: _value(scalar[at]) for at, field in enumerate(kind)}
    if types.is_map(kind):
        keys, items = scalar.values.field(0), scalar.values.field(1)
        return [(_value(key), _value(item)) for key, item in zip(keys, items, strict=True)]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [_value(each) for each in scalar.values]
    return _temporal(scalar) if types.is_temporal(kind) else scalar.as_py()


def _temporal(scalar: pa.Scalar) -> Any:
    if getattr(scalar.type, "unit", None) == "ns":
        if scalar.value % 1_000:
            return _text(scalar)
        scalar = scalar.cast(_in_micros(scalar.type))  # of nanoseconds Arrow makes objects of pandas
    try:
        return scalar.as_py()
    except OverflowError:
        return _text(scalar)


def _in_micros(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else pa.duration("us")


def _text(scalar: pa.Scalar) -> str | int:
    if pa.types.is_duration(scalar.type):
        return _duration_text(scalar.value, _PER_SECOND[scalar.type.unit])
    if not pa.types.is_time(scalar.type) and unwritten_times(pa.array([scalar], scalar.type)) is not None:
        return int(scalar.value)
    text: str = scalar.cast(pa.string()).as_py()
    return text.replace(" ", "T", 1)


def _duration_text(value: int, per_second: int) -> str:
    """As msgspec writes a timedelta, in days and seconds."""
    seconds, rest = divmod(abs(value), per_second)
    days, seconds = divmod(seconds, _DAY_S)
    fraction = f".{rest * 1_000_000_000 // per_second:09}".rstrip("0") if rest else ""
    clock = f"T{seconds}{fraction}S" if seconds or rest else ""
    date = f"{days}D" if days or not clock else ""
    return f"{'-' if value < 0 else ''}P{date}{clock}"
