"""DoGet: sends the events of a range of history."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from anabranch.errors import InvalidArgument, Truncated
from anabranch.model.ids import SegmentId, StreamId
from anabranch.reading.history.ranges import SegmentPartRange, range_schema
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream
from anabranch.server.flight.pieces import pieces_of, sent_batches
from anabranch.wire.v1 import anabranch_pb2 as v1


def read_history(
    broker: Broker, principal: Principal, command: v1.RangeReadCommand, over: Callable[[], bool]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The schema, and the batches. `over` is asked before each, and ends it. Raises PermissionDenied, StreamNotFound,
    InvalidArgument, SchemaMismatch, Truncated."""
    info = allowed_stream(broker, principal, StreamId(command.stream_id), "read", "read")
    part = SegmentPartRange(info.id, SegmentId.unpack(command.segment), command.start, command.stop, 0)
    known = info.schema.columns
    names = list(command.columns) if command.columns or command.no_columns else known.names
    schema = range_schema(known, names)
    _check(broker, part)
    pieces = (piece for batch in broker.store._history.batches(part, names) for piece in pieces_of(batch))
    return schema, sent_batches(broker, principal, info.id, pieces, over)


def _check(broker: Broker, part: SegmentPartRange) -> None:
    """Raises InvalidArgument for offsets that the segment never had, Truncated for events that are gone."""
    broker.store._history.version(part)
    view = broker.store.streams.view(part.stream)
    if part.segment not in view.segments:  # removed since
        raise Truncated(str(view.info.name), {})
    length = view.length(part.segment)
    if not part.start <= part.stop <= length:
        raise InvalidArgument(f"segment {part.segment} has the offsets up to {length}, not {part.start} to {part.stop}")
