"""Append and AppendStream: appended events are answered once they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.stream import StreamInfo
from anabranch.security.guard import Holding
from anabranch.server.events.producers import Numbered, ProducedBatch
from anabranch.server.events.writers import AcceptedBatch, SharedWriter, append_value
from anabranch.server.grpc.call import GrpcCall
from anabranch.server.grpc.errors import draining
from anabranch.server.grpc.rows import batch_of, value_of
from anabranch.server.load.stream_loads import Sampled
from anabranch.wire.v1 import store_pb2 as v1
from anabranch.writing.acknowledgement import EventRange

Answer: TypeAlias = Callable[[], Awaitable[v1.AppendResponse]]
"""Waits until events that were accepted are durable. Raises the error with which they were refused."""


async def append(call: GrpcCall, request: v1.AppendRequest, info: StreamInfo) -> v1.AppendResponse:
    """Append the events of one request."""

    async def work(found: StreamInfo, writer: SharedWriter) -> v1.AppendResponse:
        return await (await _accept(call, request, found, writer))()

    return await call.front.append(info, call.principal, work)


async def _accept(call: GrpcCall, request: v1.AppendRequest, info: StreamInfo, writer: SharedWriter) -> Answer:
    """Hand the events to the writer, or to the producer."""
    if not request.events:
        raise InvalidArgument("expected at least one event")
    if request.HasField("producer"):
        return await _accept_numbered(call, request, info, writer)
    front, now = call.front, call.front.store.runtime.clock.now()
    if len(request.events) == 1 and not writer.samples and (size := request.ByteSize()) <= limits.HTTP_SMALL_BYTES:
        await front.writers.make_room(writer)
        return _accept_single(call, value_of(request.events[0], writer.decoder, now), writer, size)

    def many() -> AcceptedBatch:
        return writer.accept(batch_of(request.events, writer.decoder, now), atomic=request.atomic)

    accepted = await front.run(many)

    async def wait() -> v1.AppendResponse:
        await front.writers.until_done(accepted.ack)
        return _of_batch(accepted)

    return wait


def _accept_single(call: GrpcCall, value: Any, writer: SharedWriter, size: int) -> Answer:
    """Accept one small event, without a thread. It counts as pending until it is durable, also if the caller is
    gone."""
    writers = call.front.writers
    ack = append_value(writer, value, size)
    writer.pending_bytes += size
    done = asyncio.ensure_future(writers.until_done(ack))
    done.add_done_callback(lambda _: writers.release(writer, size))

    async def wait() -> v1.AppendResponse:
        await asyncio.shield(done)
        pointer = ack.result(0)
        _, segment, offset = pointer
        event_range = v1.EventRange(segment=str(segment), start=offset, stop=offset + 1)
        return v1.AppendResponse(events=1, pointers=[str(pointer)], ranges=[event_range])

    return wait


async def _accept_numbered(call: GrpcCall, request: v1.AppendRequest, info: StreamInfo, writer: SharedWriter) -> Answer:
    front, now, producer = call.front, call.front.store.runtime.clock.now(), request.producer
    if not producer.id or producer.epoch < 0 or producer.sequence < 0:
        raise InvalidArgument("a producer has an id, and an epoch and a sequence from 0 on")
    number = Numbered(producer.id, producer.epoch, producer.sequence)

    def begin() -> Callable[[], ProducedBatch]:
        return front.producers.begin(info, number, batch_of(request.events, writer.decoder, now))

    result = await front.run(begin)

    async def wait() -> v1.AppendResponse:
        appended, sampled = await front.run(result)
        answer = v1.AppendResponse(
            ranges=_ranges(appended.ranges), duplicate=appended.duplicate, sampled=_sampled(sampled)
        )
        if appended.events is not None:
            answer.events = appended.events
        return answer

    return wait


def _of_batch(accepted: AcceptedBatch) -> v1.AppendResponse:
    ack, count, sampled = accepted
    answer = v1.AppendResponse(events=count, sampled=_sampled(sampled))
    if ack is None:
        return answer
    answer.ranges.extend(_ranges(ack.result(0)))
    if count <= limits.HTTP_POINTERS_MAX:
        answer.pointers.extend(str(ack.pointer(row)) for row in range(count))
    return answer


def _sampled(sampled: Sampled | None) -> v1.Sampled | None:
    if sampled is None:
        return None
    return v1.Sampled(of=sampled.events, weight=sampled.weight, rows=sampled.rows.tolist())


def _ranges(ranges: Sequence[EventRange]) -> list[v1.EventRange]:
    return [v1.EventRange(segment=str(each.segment), start=each.start, stop=each.stop) for each in ranges]


class _Accepted(NamedTuple):
    """An accepted request of an AppendStream call, and the memory that it holds until it is answered."""

    info: StreamInfo
    answer: Answer
    size: int
    memory: Holding


class _Window:
    """The accepted requests of one call that are not answered yet. Their number and their bytes are limited."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[_Accepted | None] = asyncio.Queue(limits.CONNECTION_BATCHES_MAX)
        self._bytes = 0
        self._less = asyncio.Event()

    async def put(self, accepted: _Accepted) -> None:
        """Add a request; waits while the requests, or their bytes, are over their limits."""
        self._bytes += accepted.size
        await self._queue.put(accepted)
        while self._bytes > limits.CONNECTION_BYTES_MAX:
            self._less.clear()
            await self._less.wait()

    async def end(self) -> None:
        """Mark the end: no more requests are added."""
        await self._queue.put(None)

    async def get(self) -> _Accepted | None:
        """Remove the oldest request and return it; None at the end."""
        return await self._queue.get()

    def answered(self, accepted: _Accepted) -> None:
        """Release what the request holds."""
        self._bytes -= accepted.size
        accepted.memory.release()
        self._less.set()

    def drop(self) -> None:
        """Release all requests that were not answered."""
        while not self._queue.empty():
            if (accepted := self._queue.get_nowait()) is not None:
                self.answered(accepted)


async def append_stream(call: GrpcCall) -> None:
    """Append request after request; the answers follow in their order. Once the broker drains, no more is read, what was
    accepted is answered, and the call ends with UNAVAILABLE."""
    window, loop = _Window(), asyncio.get_running_loop()
    reading = asyncio.ensure_future(_read(call, window))
    answering = asyncio.ensure_future(_answer(call, window))
    tasks = [reading, answering]

    def end() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(reading.cancel)

    forget = call.front.broker.drain.on_start(end)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        # If the answering task is done, it has failed, and no later request is answered.
        if not answering.done():
            tasks.append(asyncio.ensure_future(window.end()))
        await answering
        if reading.cancelled():
            raise draining()
        await reading
    finally:
        forget()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        window.drop()


async def _read(call: GrpcCall, window: _Window) -> None:
    front = call.front
    while (message := await call.receive(v1.AppendStreamRequest)) is not None:
        request, size = message.append, message.ByteSize()
        info = await front.names.get(request.stream, call.principal, "write", verb="append")

        async def work(
            found: StreamInfo, writer: SharedWriter, request: v1.AppendRequest = request
        ) -> tuple[StreamInfo, Answer]:
            return found, await _accept(call, request, found, writer)

        memory = front.guard.hold(call.principal, "memory", size)
        try:
            accepted = _Accepted(*await front.append(info, call.principal, work), size, memory)
        except BaseException:
            memory.release()
            raise
        await window.put(accepted)


async def _answer(call: GrpcCall, window: _Window) -> None:
    while (accepted := await window.get()) is not None:
        try:
            response = await accepted.answer()
        except Exception as exc:
            call.front.writers.forget(accepted.info, exc)
            raise
        finally:
            window.answered(accepted)
        await call.send(v1.AppendStreamResponse(append=response))
