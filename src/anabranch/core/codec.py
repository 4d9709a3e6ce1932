"""Arrow batches as the bytes that are stored: one encapsulated record batch message each, schema kept apart."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core.raw_event import RawEvent
from anabranch.core.widen import as_type
from anabranch.errors import CorruptBlob
from anabranch.model.append import Bounds
from anabranch.model.ids import Micros
from anabranch.model.schema import StreamSchema


def encode(batch: pa.RecordBatch | RawEvent) -> pa.Buffer:
    """The batch as one encapsulated IPC message without its schema, uncompressed. Slices are written without the rest."""
    return pa.py_buffer(batch.message) if isinstance(batch, RawEvent) else batch.serialize()


def decode(message: pa.Buffer, schema: pa.Schema, *, key: str = "inline") -> pa.RecordBatch:
    """The inverse of `encode`, zero-copy. Raises CorruptBlob, naming `key`."""
    try:
        return pa.ipc.read_record_batch(message, schema)
    except (pa.ArrowException, EOFError, OSError, ValueError) as exc:
        raise CorruptBlob(key, f"no Arrow record batch of the stream's schema ({exc})") from exc


def event_bounds(batch: pa.RecordBatch | RawEvent, schema: StreamSchema) -> Bounds:
    """Smallest and greatest event time of a batch that holds the stream's time column."""
    if isinstance(batch, RawEvent):
        return batch.bounds
    if schema.time is None or batch.num_rows == 0:
        return Bounds(None, None)
    column = batch.column(schema.time)
    if batch.num_rows == 1:
        only = column[0].value
        return Bounds(only, only)
    edges = pc.min_max(column.cast(pa.int64())).as_py()
    low, high = edges["min"], edges["max"]
    return Bounds(None, None) if low is None else Bounds(Micros(low), Micros(high))


def widen(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """A batch of an older schema as `columns`, in their order: those it lacks are null, narrower ones are widened. Raises
    SchemaMismatch where `columns` are the older ones and a value does not fit."""
    if batch.schema.equals(columns):
        return batch
    have = set(batch.schema.names)
    arrays = [
        as_type(batch.column(field.name), field) if field.name in have else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.record_batch(arrays, schema=columns)
