"""Values as text, in the same form for all text formats."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core.bytes_text import bytes_to_text
from anabranch.core.python_values import unwritten_times

__all__ = ["dump", "interval_text", "is_bytes", "iso", "iso_array", "json_number"]


def iso(column: pa.Array) -> list[str | None]:
    """A column of times or dates as ISO 8601, or as numbers beyond the year 32,767."""
    texts: list[str | None] = iso_array(column).to_pylist()
    return texts


def iso_array(column: pa.Array) -> pa.Array:
    """Like `iso`, but returns a column."""
    kind = column.type
    if (unwritten := unwritten_times(column)) is not None:
        texts = iso_array(pc.if_else(unwritten, pa.scalar(None, kind), column))
        numbers = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(pa.string())
        return pc.if_else(unwritten, numbers, texts)
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    if zoned:
        # UTC without a zone: Arrow prints it five times as fast.
        column = column.cast(pa.timestamp(kind.unit, "UTC")).view(pa.timestamp(kind.unit))
    texts = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(texts, "Z", "") if zoned else texts


def is_bytes(kind: pa.DataType) -> bool:
    """True for the types of bytes."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def interval_text(months: int, days: int, nanoseconds: int) -> str:
    """An interval as DuckDB writes it: `1 year 2 months -3 days 04:05:06.7`."""
    years, rest = divmod(abs(months), 12)
    sign = -1 if months < 0 else 1
    parts = [(sign * years, "year"), (sign * rest, "month"), (days, "day")]
    words = [f"{count} {unit}{'' if abs(count) == 1 else 's'}" for count, unit in parts if count]
    if nanoseconds or not words:
        seconds, fraction = divmod(abs(nanoseconds), 1_000_000_000)
        clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        words.append(f"{'-' if nanoseconds < 0 else ''}{clock}" + (f".{fraction:09}".rstrip("0") if fraction else ""))
    return " ".join(words)


def dump(value: Any) -> str:
    """A value as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_unusual, allow_nan=False)
    except ValueError:
        return json.dumps(_json_numbers(value), ensure_ascii=False, default=_unusual)


def _unusual(value: Any) -> Any:
    """Converts values inside nested ones for which JSON has no type."""
    if isinstance(value, bytes):
        return bytes_to_text(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _json_numbers(value: Any) -> Any:
    if isinstance(value, float):
        return json_number(value)
    if isinstance(value, dict):
        return {key: _json_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_numbers(item) for item in value]
    return value


def json_number(value: float) -> float | str:
    """The number, or its name if JSON has no such number."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
