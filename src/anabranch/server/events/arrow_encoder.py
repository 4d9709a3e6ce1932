"""Encodes rows as messages of an Arrow IPC stream. Each batch says how far it goes: `anabranch.cut` in its metadata is
the cut behind its last row. A batch without rows is a keep-alive, or the last one, whose `anabranch.problem` is the
reason for the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
import pyarrow as pa

from anabranch.model.columns import ADDED
from anabranch.model.cut import StreamCut

CUT: Final = "anabranch.cut"
PROBLEM: Final = "anabranch.problem"
END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Ends a stream of messages."""


@lru_cache(maxsize=64)  # each batch needs its length
def arrow_head(schema: pa.Schema) -> bytes:
    """The message that a stream of batches of this schema begins with."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, schema).close()
    return bytes(sink.getvalue().to_pybytes()[: -len(END)])


def arrow_batch(batch: pa.RecordBatch, after: StreamCut | None, problem: Mapping[str, Any] | None = None) -> bytes:
    """The messages of a batch that ends at the cut `after`; they depend on no other batch. A `problem` is why nothing
    follows."""
    metadata = {} if after is None else {CUT: str(after)}
    if problem is not None:
        metadata[PROBLEM] = msgspec.json.encode(problem).decode()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata=metadata)
    return bytes(sink.getvalue().to_pybytes()[len(arrow_head(batch.schema)) : -len(END)])


def empty_batch(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.record_batch([pa.nulls(0, field.type) for field in schema], schema=schema)


def shown_schema(columns: pa.Schema, names: Sequence[str] | None, *, meta: bool) -> pa.Schema:
    """The columns of a stream that are shown: those of `names`, or all, and with `meta` what the store adds."""
    own = columns if names is None else pa.schema([columns.field(name) for name in names])
    return pa.schema([*own, *ADDED]) if meta else pa.schema(own)


def shown_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with just these columns; those that were added to the stream since it was read are null."""
    known = batch.schema.names
    values = [
        batch.column(field.name) if field.name in known else pa.nulls(batch.num_rows, field.type) for field in schema
    ]
    return pa.record_batch(values, schema=schema)
