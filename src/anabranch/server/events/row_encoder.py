"""Encodes rows as JSON objects, one a row."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.bytes_text import bytes_to_text
from anabranch.core.python_values import python_values, unwritten_times
from anabranch.errors import InvalidSql
from anabranch.model.columns import RESERVED
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId

_SPECIAL: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}
_encode: Final = msgspec.json.Encoder().encode

Column = Callable[[pa.Array], list[Any]]


def encode_rows(
    batch: pa.RecordBatch, *, after: StreamCut | None = None, columns: Sequence[str] | None = None
) -> list[bytes]:
    """Each row of a reader's batch as a JSON object of its columns, or of `columns` in that order.

    Times are ISO 8601 in UTC, or integers beyond the year 32,767, decimals are text, NaN and the infinities are `"NaN"`, `"Infinity"`, `"-Infinity"`. Bytes
    are text; bytes that are not UTF-8 are base64 under `NAME_base64`, inside of lists, structs and maps as `bytes_to_text`
    has them. With `after`, the reader's position behind the
    batch, each row also has `_pointer`, `_appended` and `_cut`, the position behind that row.
    """
    names = [name for name in batch.schema.names if name not in RESERVED] if columns is None else list(columns)
    values = [_values(batch.column(name)) for name in names]
    binary = [name for name in names if _is_binary(batch.schema.field(name).type)]
    if after is not None:
        names += ["_pointer", "_appended", "_cut"]
        values += [pointers_of(batch, after), _values(batch.column("_appended")), cuts_of(batch, after)]
    if not names:
        return [b"{}"] * batch.num_rows
    rows = (dict(zip(names, row, strict=True)) for row in zip(*values, strict=True))
    if not binary:
        return [_encode(row) for row in rows]
    return [_encode(_with_text(row, binary)) for row in rows]


def check_result(schema: pa.Schema) -> None:
    """Raise InvalidSql if two columns of a query's result have the same name: as members of a JSON object, the
    names must be distinct."""
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise InvalidSql(f"two columns of the result are called '{name}'; give them names of their own with AS")
        seen.add(name)


def rows_together(batch: pa.RecordBatch) -> int:
    """How many rows of a batch are encoded together. The number is limited because the text of rows takes several times
    their size, and stays in memory while the caller reads nothing."""
    rows: int = batch.num_rows * limits.HTTP_ENCODED_BYTES // max(1, batch.nbytes)
    return max(1, rows)


def encode_results(batch: pa.RecordBatch) -> list[bytes]:
    """Each row of a query's result as a JSON object, as `encode_rows` writes it. The names must be distinct: see
    `check_result`. DuckDB's sums of integers are decimals without a fraction: here they are numbers, if all of the column
    fit into 64 bits."""
    columns = [_as_integers(column) for column in batch.columns]
    return encode_rows(pa.record_batch(columns, batch.schema.names), columns=batch.schema.names)


def _as_integers(column: pa.Array) -> pa.Array:
    if not pa.types.is_decimal(column.type) or column.type.scale != 0:
        return column
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def pointers_of(batch: pa.RecordBatch, after: StreamCut) -> list[str]:
    """The pointer of each row."""
    prefix = f"{after.stream:016x}{_segment_of(batch).packed:016x}" if batch.num_rows else ""
    return [f"{prefix}{offset:016x}" for offset in batch.column("_offset").to_numpy().tolist()]


def cuts_of(batch: pa.RecordBatch, after: StreamCut) -> list[str]:
    """The text of the cut after each row. `after` is the cut after the last row."""
    if not batch.num_rows:
        return []
    segment = _segment_of(batch)
    # The reader has continued with the segment's successors, so there are no cuts after the single rows.
    if segment not in after.as_dict():
        return [str(after)] * batch.num_rows
    before, behind = str(after).split(f":{segment.packed:016x}@")
    prefix = f"{before}:{segment.packed:016x}@"
    _, colon, rest = behind.partition(":")
    offsets = batch.column("_offset").to_numpy().tolist()
    return [f"{prefix}{offset + 1:x}{colon}{rest}" for offset in offsets[:-1]] + [str(after)]


def _segment_of(batch: pa.RecordBatch) -> SegmentId:
    return SegmentId.unpack(batch.column("_segment")[0].as_py())


def _values(column: pa.Array) -> list[Any]:
    """The column's values as the encoder takes them."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        if (unwritten := unwritten_times(column)) is not None:
            texts = _values(pc.if_else(unwritten, pa.scalar(None, kind), column))
            numbers = column.cast(pa.int64()).to_pylist()
            return [number if text is None else text for text, number in zip(texts, numbers, strict=True)]
        # Arrow converts each time to a datetime, which takes 100 times as long.
        text = pc.strftime(column if kind.tz else column.cast(pa.timestamp(kind.unit, "UTC")), "%Y-%m-%dT%H:%M:%S")
        suffix = "Z" if kind.tz else ""
        return [None if value is None else value + suffix for value in text.to_pylist()]
    if pa.types.is_integer(kind) and not column.null_count:
        found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return found
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(column)).as_py():
        return [_plain(value) for value in column.to_pylist()]
    if pa.types.is_nested(kind):
        return [_plain(value) for value in python_values(column)]
    return python_values(column)


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _with_text(row: dict[str, Any], binary: Sequence[str]) -> dict[str, Any]:
    """The row with its bytes as text. The order of its members stays."""
    found = {}
    for name, value in row.items():
        if value.__class__ is bytes and name in binary:
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                found[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            found[name] = value
    return found


def _plain(value: Any) -> Any:
    """A value whose parts JSON has."""
    if isinstance(value, bytes):
        return bytes_to_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return _SPECIAL.get(value, "NaN")
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
