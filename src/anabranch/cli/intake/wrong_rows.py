"""Finds which row of a refused batch is invalid, and why. The writer refuses a batch as a whole; here rows are
checked one by one."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.event_sizes import oversized
from anabranch.core.python_rows import to_stored_table
from anabranch.errors import InvalidArgument, SchemaMismatch, TooLarge
from anabranch.model.schema import StreamSchema
from anabranch.model.times import TimeRules


def first_invalid_row(rows: pa.Table, schema: StreamSchema, event_bytes_max: int, times: TimeRules) -> int | None:
    """Returns the first row that would be refused, or None. Raises SchemaMismatch for a wrong column, for which no
    single row is the cause."""
    to_stored_table(rows.slice(0, 0), schema, times)
    if reason_invalid(rows, schema, event_bytes_max, times) is None:
        return None
    low, high = 0, rows.num_rows  # the first invalid row is in low <= row < high
    while high - low > 1:
        middle = (low + high) // 2
        if reason_invalid(rows.slice(low, middle - low), schema, event_bytes_max, times) is None:
            low = middle
        else:
            high = middle
    return low


def reason_invalid(
    rows: pa.Table, schema: StreamSchema, event_bytes_max: int, times: TimeRules
) -> InvalidArgument | None:
    """Returns what is wrong with these rows, or None."""
    try:
        table = to_stored_table(rows, schema, times)
    except SchemaMismatch as exc:
        return exc
    if schema.key is not None and pa.types.is_string(schema.columns.field(schema.key).type):
        largest = pc.max(pc.binary_length(table.column(schema.key))).as_py() or 0
        if largest > limits.KEY_BYTES_MAX:
            return TooLarge("a routing key", largest, limits.KEY_BYTES_MAX)
    return oversized(table, event_bytes_max)
