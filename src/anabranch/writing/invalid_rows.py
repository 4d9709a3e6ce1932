"""Separates the rows of a batch that a stream refuses from those it takes. A writer refuses a batch as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.event_sizes import oversized
from anabranch.core.python_rows import to_stored_table
from anabranch.errors import InvalidArgument, SchemaMismatch, TooLarge
from anabranch.model.schema import StreamSchema
from anabranch.runtime.settings import Settings


class InvalidRow(NamedTuple):
    """The number of a refused row, from 0, and the reason."""

    row: int
    error: InvalidArgument


class ValidRows(NamedTuple):
    """Consecutive rows that are valid; `first` is the number of the first one, from 0."""

    first: int
    rows: pa.Table


def separate(rows: pa.Table, schema: StreamSchema, settings: Settings) -> Iterator[ValidRows | InvalidRow]:
    """Yields all rows, in order. Each invalid row takes a logarithmic number of checks. Raises SchemaMismatch for an
    unknown column, which is no single row's fault."""
    to_stored_table(rows.slice(0, 0), schema, settings.times)
    parts = [(0, rows.num_rows)]
    while parts:
        low, high = parts.pop()
        part = rows.slice(low, high - low)
        error = _error_in(part, schema, settings)
        if error is None:
            if high > low:
                yield ValidRows(low, part)
        elif high - low == 1:
            yield InvalidRow(low, error)
        else:
            middle = (low + high) // 2
            parts += [(middle, high), (low, middle)]


def _error_in(rows: pa.Table, schema: StreamSchema, settings: Settings) -> InvalidArgument | None:
    try:
        table = to_stored_table(rows, schema, settings.times)
    except SchemaMismatch as exc:
        return exc
    if schema.key is not None and pa.types.is_string(schema.columns.field(schema.key).type):
        largest = pc.max(pc.binary_length(table.column(schema.key))).as_py() or 0
        if largest > limits.KEY_BYTES_MAX:
            return TooLarge("a routing key", largest, limits.KEY_BYTES_MAX)
    return oversized(table, settings.large_event_bytes_max)
