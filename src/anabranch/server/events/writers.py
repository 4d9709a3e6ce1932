"""One writer a stream for all requests, and a way to wait for its acknowledgements without a thread each."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    AppendRefused,
    AppendUncertain,
    Closed,
    Conflict,
    StreamNotFound,
    StreamSealed,
)
from anabranch.model.ids import StreamId
from anabranch.model.stream import StreamInfo
from anabranch.server.events.row_decoder import RawRow, RowDecoder
from anabranch.server.load.stream_loads import Sampled, StreamLoads
from anabranch.store.facade import Store
from anabranch.writing.acknowledgement import Ack, BatchAck
from anabranch.writing.writer import Writer

_ENDED: Final = (StreamNotFound, StreamSealed, Closed, Conflict, AppendRefused, AppendUncertain)


class AcceptedBatch(NamedTuple):
    """What a writer got of a batch: the acknowledgement, None if no event is kept; the number of events that are
    kept."""

    ack: BatchAck | None
    events: int
    sampled: Sampled | None


class SharedWriter:
    """The writer of one stream, how its events are decoded, and the load policies that apply to them."""

    __slots__ = ("_loads", "decoder", "pending_bytes", "room", "schema_version", "writer")

    def __init__(self, writer: Writer, decoder: RowDecoder, schema_version: int, loads: StreamLoads) -> None:
        self._loads = loads
        self.writer = writer
        self.decoder = decoder
        self.schema_version = schema_version
        self.pending_bytes = 0  # of single events
        self.room: asyncio.Future[None] | None = None

    @property
    def samples(self) -> bool:
        """True if the stream's events may be sampled: a single event is then appended as a batch, too."""
        return self._loads.samples(self.writer.stream_id)

    def admit(self, events: int, size: int) -> None:
        """Count events that are not appended by `accept`. Raises RateLimited."""
        self._loads.admit(self.writer.stream_id, events, size)

    def accept(self, data: pa.RecordBatch | pa.Table, *, atomic: bool = False) -> AcceptedBatch:
        """Hand the writer the events of a batch that the stream's load policy keeps. Raises RateLimited, and what
        `Writer.write_batch` raises."""
        kept, sampled = self._loads.thin(self.writer.stream_id, data)
        ack = self.writer.write_batch(kept, atomic=atomic) if kept.num_rows else None
        return AcceptedBatch(ack, kept.num_rows, sampled)


def append_value(writer: SharedWriter, value: Any, size: int) -> Ack:
    """Hand one event of a stream that is not sampled, parsed from JSON or a RawRow, to the writer. Raises RateLimited."""
    writer.admit(1, size)
    decoder = writer.decoder
    if not decoder.schema.raw:
        return writer.writer.write(decoder.row(value))
    payload, key, moment = value if isinstance(value, RawRow) else decoder.raw(value)
    return writer.writer.write(payload, key=key, time=moment)


class SharedWriters:
    """The writers of one front end of a broker. All methods are called in the event loop in which it is
    constructed."""

    def __init__(self, store: Store, loads: StreamLoads, threads: Executor) -> None:
        self._store = store
        self._loads = loads
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._writers: dict[StreamId, SharedWriter] = {}  # in the order in which they were opened
        self._opening: dict[StreamId, asyncio.Future[Writer]] = {}
        self._done: deque[Callable[[], None]] = deque()
        self._woken = False

    def known(self, info: StreamInfo) -> SharedWriter | None:
        """The stream's writer, if it is open and knows these columns."""
        found = self._writers.get(info.id)
        return found if found is not None and found.schema_version == info.schema_version else None

    async def get(self, info: StreamInfo) -> SharedWriter:
        """The stream's writer. Raises StreamNotFound, StreamSealed, and InvalidArgument for a byte stream."""
        if (found := self.known(info)) is not None:
            return found
        shared = self._writers.get(info.id)
        if shared is None:
            opening = self._opening.get(info.id)
            if opening is None:
                opening = self._loop.run_in_executor(self._threads, self._store.writer, info.name)
                self._opening[info.id] = opening
                opening.add_done_callback(partial(self._opened, info))
            writer = await asyncio.shield(opening)
            if writer.stream_id != info.id:  # the name was given to another stream meanwhile
                raise StreamNotFound(str(info.name))
            shared = self._writers.get(info.id) or self._keep(info, writer)
        if shared.schema_version != info.schema_version:
            shared.decoder = RowDecoder(info.schema, self._store.runtime.settings.times)
            shared.schema_version = info.schema_version
        return shared

    def forget(self, info: StreamInfo, error: BaseException) -> None:
        """Close the stream's writer if the error says that it can't be used any more; the next `get` opens another."""
        if isinstance(error, _ENDED) and (found := self._writers.pop(info.id, None)) is not None:
            self._close(found.writer)

    async def until_done(self, ack: Ack | BatchAck | None) -> None:
        """Return once the events are durable or refused; at once if `ack` is None. One wake-up of the loop serves all
        acknowledgements that are done together."""
        if ack is None:
            return
        done = self._loop.create_future()
        self.when_done(ack, partial(_settle, done))
        await done

    def when_done(self, ack: Ack | BatchAck, callback: Callable[[], None]) -> None:
        """Call back in the event loop once the events are durable or refused, perhaps twice. The callback must not
        raise."""
        ack.when_done(partial(self._note, callback))

    async def make_room(self, writer: SharedWriter) -> None:
        """Wait while too many single events of the stream are not durable yet."""
        while writer.pending_bytes > limits.HTTP_PENDING_BYTES_MAX:
            if writer.room is None:
                writer.room = self._loop.create_future()
            await asyncio.shield(writer.room)

    def release(self, writer: SharedWriter, size: int) -> None:
        """An event of `size` bytes is durable or refused."""
        writer.pending_bytes -= size
        if writer.room is not None and writer.pending_bytes <= limits.HTTP_PENDING_BYTES_MAX // 2:
            writer.room.set_result(None)
            writer.room = None

    async def close(self) -> None:
        """Wait until everything accepted is durable, and close the writers. May be called again."""
        writers, self._writers = list(self._writers.values()), {}
        if writers:
            await asyncio.gather(
                *(self._loop.run_in_executor(self._threads, _close_quietly, each.writer) for each in writers)
            )

    def _opened(self, info: StreamInfo, opening: asyncio.Future[Writer]) -> None:
        """Keep the writer that was opened, also if all callers that wait for it were cancelled."""
        self._opening.pop(info.id, None)
        if opening.cancelled() or opening.exception() is not None:
            return
        writer, shared = opening.result(), self._writers.get(info.id)
        if shared is None and writer.stream_id == info.id:
            self._keep(info, writer)
        elif shared is None or shared.writer is not writer:  # a caller of `get` may have kept this writer already
            self._close(writer)

    def _keep(self, info: StreamInfo, writer: Writer) -> SharedWriter:
        while len(self._writers) >= limits.HTTP_WRITERS_MAX:
            oldest = next(iter(self._writers))
            self._close(self._writers.pop(oldest).writer)
        decoder = RowDecoder(info.schema, self._store.runtime.settings.times)
        shared = self._writers[info.id] = SharedWriter(writer, decoder, info.schema_version, self._loads)
        return shared

    def _close(self, writer: Writer) -> None:
        self._loop.run_in_executor(self._threads, _close_quietly, writer)

    def _note(self, done: Callable[[], None]) -> None:
        """Called in the thread that commits."""
        self._done.append(done)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed, and with it the caller is gone
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._woken = False  # first, so that later notes wake this task again
        while self._done:
            self._done.popleft()()


def _settle(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _close_quietly(writer: Any) -> None:
    """Close a writer whose errors were answered to the requests that caused them."""
    with suppress(AnabranchError):
        writer.close()
