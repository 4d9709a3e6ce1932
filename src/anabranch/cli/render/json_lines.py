"""A result as JSON lines."""

from __future__ import annotations

import base64
from json.encoder import encode_basestring
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.cli.render.sink import Sink, TextRenderer
from anabranch.cli.render.values import dump, is_bytes, iso
from anabranch.core.python_values import python_values
from anabranch.core.terminal import terminal_json

__all__ = ["JsonLines", "json_rows"]

_ROWS_PER_WRITE: Final = 8_192


class JsonLines(TextRenderer):
    """Prints one JSON object a row. Times are ISO 8601; bytes that are not UTF-8 are base64 under `NAME_base64`; the
    numbers that JSON lacks are the texts "NaN", "Infinity" and "-Infinity", as in the JSON mapping of Protocol Buffers:
    they differ from null, and `write` reads them back."""

    def __init__(self, schema: pa.Schema, sink: Sink) -> None:
        super().__init__(sink)

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _ROWS_PER_WRITE):
            lines = "".join([f"{row}\n" for row in json_rows(batch.slice(start, _ROWS_PER_WRITE))])
            self.put(terminal_json(lines) if self._terminal else lines)

    def close(self) -> None:
        pass


def json_rows(batch: pa.RecordBatch) -> list[str]:
    """Returns each row as a JSON object, as `JsonLines` prints it."""
    members = [_members(f.name, c) for f, c in zip(batch.schema, batch.columns, strict=True)]
    return [f"{{{', '.join(row)}}}" for row in zip(*members, strict=True)]


def _members(name: str, column: pa.Array) -> list[str]:
    """Returns a column as members of JSON objects."""
    label = f"{dump(name)}: "
    if is_bytes(column.type):
        return [_bytes_member(name, label, value) for value in column.to_pylist()]
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return [label + "null" if text is None else f'{label}"{text}"' for text in iso(column)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encode = encode_basestring
        return [label + "null" if text is None else label + encode(text) for text in column.to_pylist()]
    if (pa.types.is_integer(kind) or pa.types.is_float64(kind)) and _plain_numbers(column):
        return [f"{label}{value}" for value in column.to_numpy().tolist()]
    if _is_whole(kind):
        return [label + ("null" if value is None else str(int(value))) for value in column.to_pylist()]
    return [label + dump(value) for value in python_values(column)]


def _is_whole(kind: pa.DataType) -> bool:
    """True for a decimal without a fraction, as DuckDB returns sums of integers."""
    return bool(pa.types.is_decimal(kind) and kind.scale == 0)


def _plain_numbers(column: pa.Array) -> bool:
    """True if Python's text of each value is valid JSON."""
    return not column.null_count and (
        pa.types.is_integer(column.type) or pc.all(pc.is_finite(column)).as_py() is not False
    )


def _bytes_member(name: str, label: str, value: bytes | None) -> str:
    if value is None:
        return label + "null"
    try:
        return label + encode_basestring(value.decode())
    except UnicodeDecodeError:
        return f'{dump(name + "_base64")}: "{base64.b64encode(value).decode()}"'
