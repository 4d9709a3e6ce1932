"""Rows of Spark's state as plain JSON. Needs no Spark.

The operators of `anabranch.spark.pipelines.windows` keep rows of many keys as one value, an Arrow IPC stream
(`row_blobs`). They are listed here one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from anabranch.spark.pipelines.windows.columns import KEY
from anabranch.spark.pipelines.windows.row_blobs import unpack

__all__ = ["bucket_rows", "has_part", "plain", "plain_members"]

_OWN: Final = "_anabranch_"  # a prefix of the names of columns that are not those of a stream


def bucket_rows(fields: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """The rows that a bucket of keys holds: the field in which each is, its key and its value. Other fields are left out."""
    for name, blob in fields.items():
        if isinstance(blob, bytes | bytearray) and blob:
            for batch in unpack(bytes(blob)).to_batches():
                keys = [each for each in batch.schema.names if each.startswith(KEY)]
                others = [each for each in batch.schema.names if each not in keys]
                for key, value in zip(_rows(batch, keys), _rows(batch, others), strict=True):
                    yield name, key, value


def _rows(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    for row in batch.select(names).to_pylist():
        yield {name.removeprefix(_OWN): plain(value) for name, value in row.items()}


def has_part(key: Mapping[str, Any], text: str) -> bool:
    """True if a member of the key, which is plain JSON, has this text."""
    return any(str(part) == text for part in key.values() if not isinstance(part, dict | list | None))


def plain_members(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """A row by its names, of which some may be equal: the second `sum` is `sum_2`."""
    found: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name}_{number}"
        found[free] = plain(value)
    return found


def plain(value: Any) -> Any:
    """A value as JSON. Times are ISO 8601 in UTC, numbers that JSON lacks are text, and of bytes only their number is
    given."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, date | timedelta | Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": len(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "__fields__"):  # a row of Spark's
        return plain_members(value.__fields__, value)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)
