"""Which row of a batch a stream would not take, and why: what the writer refuses as a whole, looked at row by row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.rows import conform
from anabranch.errors import InvalidArgument, SchemaMismatch, TooLarge
from anabranch.model.schema import StreamSchema


def first_wrong(rows: pa.Table, schema: StreamSchema, event_bytes_max: int) -> int | None:
    """The first row that would be refused, or None. A wrong column, which is no row's fault, raises SchemaMismatch."""
    conform(rows.slice(0, 0), schema)
    if why_wrong(rows, schema, event_bytes_max) is None:
        return None
    low, high = 0, rows.num_rows  # the first wrong row is in low <= row < high
    while high - low > 1:
        middle = (low + high) // 2
        if why_wrong(rows.slice(low, middle - low), schema, event_bytes_max) is None:
            low = middle
        else:
            high = middle
    return low


def why_wrong(rows: pa.Table, schema: StreamSchema, event_bytes_max: int) -> InvalidArgument | None:
    """What is wrong with these rows, or None."""
    try:
        table = conform(rows, schema)
    except SchemaMismatch as exc:
        return exc
    for field in schema.columns:
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            largest = pc.max(pc.binary_length(table.column(field.name))).as_py() or 0
            if field.name == schema.key and largest > limits.KEY_BYTES_MAX:
                return TooLarge("a routing key", largest, limits.KEY_BYTES_MAX)
            if largest > event_bytes_max:
                return TooLarge(f"an event's column '{field.name}'", largest, event_bytes_max)
    return None
