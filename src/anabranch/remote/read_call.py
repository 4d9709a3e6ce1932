"""Reads a broker's stream ahead of its consumer, in a task of its own, and continues after a lost connection at the cut
where it stopped."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.errors import SchemaMismatch, StoreUnavailable
from anabranch.log.read import SegmentRows
from anabranch.model.columns import TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.reading.row_source import StreamDelivery
from anabranch.remote.connection import Connection, broker_retries
from anabranch.remote.read_stream import cancel, next_chunk
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task
from anabranch.wire.commands import parse
from anabranch.wire.flight_errors import from_flight
from anabranch.wire.v1 import anabranch_pb2 as v1

# Rows, or the position after events that were left out.
Found: TypeAlias = StreamDelivery | Mapping[SegmentId, int]


class ReadCall:
    """Supplies rows until the end."""

    def __init__(self, connection: Connection, runtime: Runtime, command: v1.ReadCommand) -> None:
        """Open it. Raises what the broker refuses it with, StoreUnavailable."""
        self._connection = connection
        self._runtime = runtime
        self._command = command
        self.changed = runtime.tasks.condition()
        self._ready: deque[tuple[Found, int]] = deque()  # with its bytes, about
        self._bytes = 0
        self._error: Exception | None = None
        self._task: Task | None = None
        self._running = False
        self._at_tail = True  # the broker has said that no more rows are in flight at present
        self._ended = self._closed = False
        self._chunks: Any = None
        self._generation = 0  # of the connection on which it was opened last
        opening = connection.retried(self._open)
        chunks: Any = self._chunks
        self.schema: pa.Schema = chunks.schema
        self.start = StreamCut.parse(opening.position)
        self._position: Mapping[SegmentId, int] = self.start.as_dict()  # after what was received
        self.end = StreamCut.parse(opening.end) if opening.end else None
        self.skipped = opening.skipped
        command.skip_truncated = False
        del command.columns[:]
        command.columns.extend(self.schema.names)
        if self.end is not None:
            command.end.text = opening.end

    # the consumer

    @property
    def exhausted(self) -> bool:
        """Whether all was supplied up to the end."""
        return self._ended and not self._ready

    def next(self, until: float | None, interrupted: Callable[[], bool], *, look: bool) -> Found | None:
        """The next rows, or position. Returns None at the end, if interrupted, and at the time `until` of the monotonic
        clock if the broker has said that there are no more rows at present. Without `look`, returns only what was
        received already, else None. Raises what the broker raised; the next call then tries again."""
        with self.changed:
            while not self._ready:
                if self._closed:  # checked before the error, which may come from closing
                    return None
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                if self._ended or interrupted() or not look:
                    return None
                if not self._running:
                    self._running = True
                    self._task = self._runtime.tasks.spawn("remote-reader", self._run)
                left = None if until is None else until - self._runtime.clock.monotonic()
                if left is not None and left <= 0:
                    if self._at_tail:
                        return None
                    left = None
                self.changed.wait(left)
            found, size = self._ready.popleft()
            self._bytes -= size
            self.changed.notify_all()
            return found

    def close(self) -> None:
        """End the call. A second one does nothing."""
        with self.changed:
            self._closed = True
            self._ready.clear()
            self._bytes = 0
            self.changed.notify_all()
        self._cancel()
        if self._task is not None:
            self._task.join(limits.TASK_END_S)
        self._chunks = None

    # the receiving task

    def _run(self) -> None:
        retries = broker_retries(self._runtime)
        while not self._closed:
            try:
                if self._chunks is None:
                    self._reopen()
                while self._receive():
                    retries = broker_retries(self._runtime)
                return
            except Exception as exc:
                error = from_flight(exc)
            self._cancel()
            self._chunks = None
            if type(error) is StoreUnavailable and not self._closed:
                self._connection.lost(error, self._generation)
                if retries.again(error):
                    continue
            with self.changed:
                self._error, self._running = error, False
                self.changed.notify_all()
            return

    def _open(self) -> v1.BatchMetadata:
        self._generation = self._connection.generation
        self._chunks = self._connection.channel.read(self._command)
        chunk = next_chunk(self._chunks)
        if chunk is None:
            raise StoreUnavailable("the broker ended the read before it began")
        opened = parse(v1.BatchMetadata, chunk.app_metadata.to_pybytes())
        self._at_tail = not opened.HasField("at_tail")
        return opened

    def _reopen(self) -> None:
        self._command.start.text = str(StreamCut.of(self.start.stream, self._position))
        self._open()
        if self._chunks.schema != self.schema:
            raise SchemaMismatch("a column of the stream was widened meanwhile; open another reader")
        if self._closed:
            self._cancel()

    def _receive(self) -> bool:
        """Receive the next batch; waits while too much is ahead of the consumer. False at the end."""
        chunk = next_chunk(self._chunks)
        if chunk is None:
            with self.changed:
                self._ended, self._running = True, False
                self.changed.notify_all()
            return False
        metadata = parse(v1.BatchMetadata, chunk.app_metadata.to_pybytes())
        if metadata.at_tail:
            with self.changed:
                self._at_tail = True
                self.changed.notify_all()
            return True
        if metadata.position:
            position = StreamCut.parse(metadata.position).as_dict()
            return self._supply([(position, 0)], position)
        position = dict(self._position)
        received = list(_received(chunk.data, metadata, position))
        return not received or self._supply(received, position)

    def _supply(self, found: Sequence[tuple[Found, int]], position: Mapping[SegmentId, int]) -> bool:
        """Hand what was received to the consumer; `position` is the position after it. False if the consumer has closed
        the call."""
        size = sum(each for _, each in found)
        with self.changed:
            while self._bytes + size > limits.CONNECTION_BYTES_MAX and self._bytes and not self._closed:
                self.changed.wait()
            if self._closed:
                self._running = False
                return False
            self._position = position
            self._at_tail = self._at_tail and not size
            self._ready.extend(found)
            self._bytes += size
            self.changed.notify_all()
        return True

    def _cancel(self) -> None:
        chunks = self._chunks
        if chunks is not None:
            cancel(chunks)


def _received(
    batch: pa.RecordBatch, metadata: v1.BatchMetadata, position: dict[SegmentId, int]
) -> Iterator[tuple[StreamDelivery, int]]:
    """The runs of a batch, with their bytes. Moves `position` past them."""
    begin, row_bytes = 0, batch.nbytes / max(1, batch.num_rows)
    for run in metadata.runs:
        segment, before = SegmentId.unpack(run.segment), None
        if run.position:
            position.clear()
            position.update(StreamCut.parse(run.position).as_dict())
            before = {**position, segment: run.first}
        position[segment] = run.stop
        offsets = pa.array(np.frombuffer(run.offsets, "<i8")) if run.offsets else None
        appended: int | pa.Array = run.appended_us
        if run.appended_times:
            appended = pa.array(np.frombuffer(run.appended_times, "<i8")).cast(TIME_TYPE)
        rows = SegmentRows(run.first, run.stop, batch.slice(begin, run.rows), appended, offsets)
        yield StreamDelivery(segment, rows, before), 1 + int(run.rows * row_bytes)
        begin += run.rows
