"""DoGet of bytes: sends the chunks of a byte stream from a position on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.core.binary_column import binary_column
from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.reading.byte_index import ByteChunk, ByteIndex
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream
from anabranch.server.flight.pieces import sent_batches
from anabranch.wire.v1 import anabranch_pb2 as v1

_SCHEMA: Final = pa.schema([("start", pa.int64()), ("truncated_before", pa.int64()), ("bytes", pa.binary())])


def read_bytes(
    broker: Broker, principal: Principal, command: v1.ByteReadCommand, over: Callable[[], bool]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and the batches up to the present tail. `over` is asked before each, and ends it. Raises
    PermissionDenied, StreamNotFound, InvalidArgument; the batches raise Truncated, CorruptStore."""
    info = allowed_stream(broker, principal, StreamId(command.stream_id), "read", "read")
    source = broker.store._byte_streams.index(info.id)
    if command.position < 0:
        raise InvalidArgument(f"expected a position of at least 0 in a byte stream, got {command.position}")
    return _SCHEMA, sent_batches(broker, principal, info.id, _batches(source, command.position), over)


def _batches(source: ByteIndex, position: int) -> Iterator[pa.RecordBatch]:
    chunks = source.chunks_at(position) if position < source.tail() else iter(())
    for gathered in _gathered(chunks):
        starts = pa.array([each.start for each in gathered], pa.int64())
        before = pa.array([source.truncated_before] * len(gathered), pa.int64())
        yield pa.RecordBatch.from_arrays([starts, before, _data(gathered)], schema=_SCHEMA)


def _data(gathered: list[ByteChunk]) -> pa.Array:
    """The chunks as a column; a single one is not copied."""
    whole = gathered[0].data if len(gathered) == 1 else b"".join(memoryview(each.data) for each in gathered)
    return binary_column(whole, [0, *accumulate(each.data.size for each in gathered)])


def _gathered(chunks: Iterator[ByteChunk]) -> Iterator[list[ByteChunk]]:
    """Small chunks together, so that they are few batches."""
    found: list[ByteChunk] = []
    size = 0
    for chunk in chunks:
        found.append(chunk)
        size += chunk.data.size
        if size >= limits.BYTE_CHUNK_BYTES or len(found) >= limits.FLIGHT_CHUNKS_MAX:
            yield found
            found, size = [], 0
    if found:
        yield found
