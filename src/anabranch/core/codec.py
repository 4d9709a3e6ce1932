"""Encodes Arrow batches for storage: one encapsulated record batch message each, with the schema stored separately."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core.ipc_message import refuse_compressed
from anabranch.core.raw_event import RawEvent
from anabranch.core.type_widening import as_type
from anabranch.errors import CorruptBlob
from anabranch.model.append import TimeBounds
from anabranch.model.ids import Micros
from anabranch.model.schema import StreamSchema


def encode(batch: pa.RecordBatch | RawEvent) -> pa.Buffer:
    """The batch as one encapsulated IPC message without its schema, uncompressed. If the batch is a slice, only the
    slice is written."""
    return pa.py_buffer(batch.message) if isinstance(batch, RawEvent) else batch.serialize()


def decode(message: pa.Buffer, schema: pa.Schema, *, key: str = "inline", known: bool = False) -> pa.RecordBatch:
    """The inverse of `encode`, zero-copy: the batch views the message's bytes and allocates none of its own. Unless the
    message is `known`, as this process has decoded it before, it is checked that it is not compressed, and each of its
    values. Raises CorruptBlob, naming `key`."""
    try:
        if not known:
            refuse_compressed(message)
        batch = pa.ipc.read_record_batch(message, schema)
        # Without this, Arrow would follow offsets that point outside their buffer.
        batch.validate()
        if not known:
            check_values(batch)
        return batch
    except (pa.ArrowException, EOFError, OSError, ValueError) as exc:
        raise CorruptBlob(key, f"not an Arrow record batch of the stream's schema ({exc})") from exc


def check_values(batch: pa.RecordBatch) -> None:
    """`batch.validate(full=True)`, in a quarter of the time for text in ASCII: if all bytes of a column are, so is each of its
    values, and only the offsets are left to be checked. The batch has passed `validate()`. Raises pa.ArrowInvalid."""
    for column in batch.columns:
        (column.view(pa.binary()) if _is_ascii(column) else column).validate(full=True)


def _is_ascii(column: pa.Array) -> bool:
    """True if the column is text, and all of its bytes are known to be ASCII."""
    if column.type != pa.string() or not len(column):
        return False
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    start, stop = int(ends[0]), int(ends[-1])
    return (
        data is not None
        and 0 <= start <= stop <= data.size
        and bool(np.frombuffer(data, np.int8)[start:stop].min(initial=0) >= 0)  # the fastest of numpy's ways
    )


def event_bounds(batch: pa.RecordBatch | RawEvent, schema: StreamSchema) -> TimeBounds:
    """Smallest and greatest event time of a batch that holds the stream's time column."""
    if isinstance(batch, RawEvent):
        return batch.bounds
    if schema.time is None or batch.num_rows == 0:
        return TimeBounds(None, None)
    column = batch.column(schema.time)
    if batch.num_rows == 1:
        only = column[0].value
        return TimeBounds(only, only)
    edges = pc.min_max(column.cast(pa.int64())).as_py()
    low, high = edges["min"], edges["max"]
    return TimeBounds(None, None) if low is None else TimeBounds(Micros(low), Micros(high))


def widen(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Convert a batch of an older schema to `columns`, in their order: missing columns are null, narrower ones are
    widened. Raises SchemaMismatch if `columns` is the older schema and a value does not fit."""
    if batch.schema.equals(columns):
        return batch
    have = set(batch.schema.names)
    arrays = [
        as_type(batch.column(field.name), field) if field.name in have else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.record_batch(arrays, schema=columns)
