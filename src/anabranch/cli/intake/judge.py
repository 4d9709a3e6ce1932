"""Which row of a batch a stream would not take, and why: what the writer refuses as a whole, looked at row by row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch import limits
from anabranch.core.rows import conform
from anabranch.core.sizes import oversized
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
    if schema.key is not None and pa.types.is_string(schema.columns.field(schema.key).type):
        largest = pc.max(pc.binary_length(table.column(schema.key))).as_py() or 0
        if largest > limits.KEY_BYTES_MAX:
            return TooLarge("a routing key", largest, limits.KEY_BYTES_MAX)
    return oversized(table, event_bytes_max)
