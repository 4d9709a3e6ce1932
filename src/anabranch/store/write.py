"""`Store.write`: a table, or a stream of batches, written in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.core.python_rows import to_table
from anabranch.core.python_values import python_values
from anabranch.errors import InvalidArgument
from anabranch.model.amounts import check_integer
from anabranch.model.columns import user_columns
from anabranch.model.names import StreamName
from anabranch.model.policy import Fixed
from anabranch.model.schema import StreamSchema
from anabranch.runtime.settings import Settings
from anabranch.store.row_writer import RowWriter, WritableStore, check_roles
from anabranch.writing.invalid_rows import InvalidRow

_BATCH_BYTES = 64 * limits.MIB


class RejectedRow(NamedTuple):
    """A row that could not be written: its number in the data, from 0, its values, and why."""

    row: int
    reason: str
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What `Store.write` did. `added` are the columns that the stream got. `diverted` of the events went to streams of
    violations, see `Streams.add_check`."""

    events: int
    rejected: int
    created: bool
    added: tuple[str, ...]
    diverted: int = 0


def write(
    store: WritableStore,
    settings: Settings,
    stream: str | StreamName,
    data: Any,
    *,
    create: bool = False,
    key: str | None = None,
    time: str | None = None,
    segments: int = 1,
    add_columns: bool = False,
    atomic: bool = False,
    skip_errors: int | None = 0,
    on_rejected: Callable[[RejectedRow], None] | None = None,
) -> WriteReport:
    """See `Store.write`."""
    name = StreamName.parse(stream)
    if skip_errors is not None:
        check_integer("skip_errors", skip_errors)
    columns, batches = _batches(data)
    with RowWriter(store, name, settings=settings, scaling=Fixed(segments)) as rows:
        if rows.present is None:
            if not create:
                store.streams.get(name)  # raises the error, which names similar streams
            schema = StreamSchema.typed(columns, key, time)
        else:
            check_roles(name, rows.present, key, time)
            schema = rows.present
            new = [field for field in columns if field.name not in schema.columns.names]
            if add_columns and new:
                schema = schema.with_columns(pa.schema(new))
        rejections = _Rejections(skip_errors, on_rejected)
        first = 0
        for batch in batches:
            reject = partial(rejections.add, batch, first)
            (rows.hold if atomic else rows.write)(batch, schema, reject)
            first += batch.num_rows
        if atomic:
            rows.write_held(schema)
        if rows.present is None and not rejections.count:
            rows.open(schema)  # for data without rows too
        rows.flush()
        return WriteReport(rows.durable, rejections.count, rows.created, tuple(rows.added), rows.diverted)


class _Rejections:
    def __init__(self, most: int | None, callback: Callable[[RejectedRow], None] | None) -> None:
        self.count = 0
        self._most = most
        self._callback = callback

    def add(self, batch: pa.Table, first: int, invalid: InvalidRow) -> None:
        self.count += 1
        number, reason = first + invalid.row, str(invalid.error)
        if self._most is not None and self.count > self._most:
            beyond = f"; skip_errors={self._most} skips no more" if self._most else ""
            raise InvalidArgument(f"row {number}: {reason}{beyond}") from invalid.error
        if self._callback is not None:
            row = batch.slice(invalid.row, 1)
            values = {name: python_values(row.column(name))[0] for name in row.column_names}
            self._callback(RejectedRow(number, reason, values))


def _batches(data: Any) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """The columns of the data that are the user's, and the data in parts. Raises InvalidArgument if it is not a batch."""
    if isinstance(data, pa.Table | pa.RecordBatch) or not hasattr(data, "__arrow_c_stream__"):
        table = to_table(data)
        step = max(1, _BATCH_BYTES * table.num_rows // max(1, table.nbytes))
        parts = (table.slice(start, step) for start in range(0, table.num_rows, step))
        return user_columns(table.schema), parts
    reader = pa.RecordBatchReader.from_stream(data)
    return user_columns(reader.schema), (pa.Table.from_batches([batch]) for batch in reader)
