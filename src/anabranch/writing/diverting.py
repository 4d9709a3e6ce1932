"""Divides a batch into the rows that a stream takes and those that its checks send to streams of violations.

Only ways of writing that publish several streams as one unit divide batches: transactions and Spark's jobs. A writer's
append concerns one stream, so it refuses violations as for any other check.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.core.checks import divided
from anabranch.core.event_sizes import oversized
from anabranch.core.python_rows import to_stored_table
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.schema import StreamSchema
from anabranch.runtime.settings import Settings

__all__ = ["divided_batch", "violating_rows"]


def divided_batch(data: Any, schema: StreamSchema, settings: Settings) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The rows that the stream takes, and the others by the name of their stream of violations; see
    `anabranch.core.checks.divided`. Raises what a stager raises for a batch that it refuses."""
    table = to_stored_table(data, schema.with_checks(()), settings.times)
    if (large := oversized(table, settings.large_event_bytes_max)) is not None:
        raise large
    return divided(table, schema.checks)


def violating_rows(rows: pa.Table, schema: StreamSchema, stream: str, settings: Settings) -> pa.Table:
    """The rows with the columns of the stream of violations. Raises SchemaMismatch if that stream refuses them."""
    known = [name for name in rows.column_names if name in schema.columns.names]
    try:
        return to_stored_table(rows.select(known), schema, settings.times)
    except InvalidArgument as exc:
        raise SchemaMismatch(f"'{stream}' can't take the events that break a check: {exc}") from exc
