"""DoPut of bytes: the appends of the one writer of a byte stream. The number of events that a batch follows is its
condition, so that a batch that is sent again is appended once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.core.byte_stream import BYTES
from anabranch.errors import ConditionFailed, InvalidArgument
from anabranch.model.ids import SegmentId, StreamId
from anabranch.server.broker import Broker
from anabranch.server.flight.appended_rows import AppendedRows, appended_rows
from anabranch.wire.v1 import anabranch_pb2 as v1

_SEGMENT: Final = SegmentId(0, 0)  # the only one of a byte stream


class ByteTarget:
    """Appends by the owner of `AppendCommand.byte_fence`. What it had under way elsewhere can't land any more."""

    epoch, last_sequence = 0, -1

    def __init__(self, broker: Broker, stream: StreamId, command: v1.AppendCommand) -> None:
        """Raises Fenced where the stream was claimed since; InvalidArgument."""
        if command.HasField("producer") or command.HasField("fence"):
            raise InvalidArgument("the writer of a byte stream has only a byte_fence")
        if not 0 < command.byte_fence < 1 << 62:
            raise InvalidArgument(f"expected a byte_fence of bytes.claim, not {command.byte_fence}")
        self._writer, source = broker.store._byte_streams.claim(stream, resumed=command.byte_fence)
        self._stored = self._events = source.events
        self._position = source.tail()

    def append(self, batch: pa.RecordBatch, metadata: v1.AppendMetadata) -> Callable[[], AppendedRows]:
        """Accept a batch; returns what waits until it is durable, which raises the refusal."""
        if not metadata.HasField("expected") or metadata.HasField("note_time_us") or metadata.forget:
            raise InvalidArgument("bytes are appended on the condition of how many events there are")
        expected = metadata.expected
        if expected >= 0 and expected + batch.num_rows <= self._stored:
            return lambda: AppendedRows([(_SEGMENT, expected, batch.num_rows)], duplicate=True)
        if expected != self._events:
            raise ConditionFailed(expected, self._events)
        end = _end_of(batch, self._position)
        accepted = self._writer.write_batch(batch, atomic=True, expected=expected)
        self._events, self._position = expected + batch.num_rows, end
        return lambda: appended_rows(accepted.landings())

    def close(self) -> None:
        """Accept no more."""
        self._writer.close()


def _end_of(batch: pa.RecordBatch, position: int) -> int:
    """The position after these chunks. Raises InvalidArgument unless they follow the position."""
    if batch.schema != BYTES.columns:
        raise InvalidArgument("the events of a byte stream have the columns `until` and `bytes`")
    until, data = batch.column(0).cast(pa.int64()), batch.column(1)
    if until.null_count or data.null_count:
        raise InvalidArgument("expected chunks of bytes without nulls")
    ends = pc.add(pc.cumulative_sum(pc.binary_length(data).cast(pa.int64())), position)
    if not until.equals(ends):
        raise InvalidArgument(f"the bytes don't follow those before them, which end at {position}")
    return int(ends[-1].as_py()) if len(ends) else position
