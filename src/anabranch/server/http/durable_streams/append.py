"""`POST /streams/…`: append to a stream, close it, or both."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

import pyarrow as pa
from starlette.datastructures import Headers
from starlette.responses import Response

from anabranch.errors import (
    AnabranchError,
    Closed,
    ConditionFailed,
    Fenced,
    InvalidArgument,
    OutOfSequence,
    StreamNotFound,
    StreamSealed,
)
from anabranch.model.columns import RAW_COLUMNS
from anabranch.model.producer import ProducerState
from anabranch.server.events.producers import Numbered
from anabranch.server.http.body import read_body
from anabranch.server.http.durable_streams.config import same_type, wants_close
from anabranch.server.http.durable_streams.messages import messages_of
from anabranch.server.http.durable_streams.offsets import offset_text
from anabranch.server.http.durable_streams.state import DurableStream, load, touch
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal
from anabranch.server.http.producers import numbered
from anabranch.store.facade import Store

_SEQUENCE_ROWS_FIRST: Final = 256


async def append_durable_stream(call: HttpCall) -> Response:
    """Append to a Durable Stream, or close it. The body is one message, or the messages of a JSON array; with
    `Stream-Closed: true` nothing more follows. The answer comes once it is durable."""
    headers, front = call.request.headers, call.front
    number = numbered(headers)
    body = await read_body(call.request.receive, call.request.scope["headers"])
    front.guard.admit(call.principal, calls=0, bytes_=len(body))
    closing = wants_close(headers)
    if not body and not closing:
        raise InvalidArgument("the body is empty")
    stream = await front.run(lambda: load(front, str(call.info.name)))
    messages = _checked(stream, headers, body) if body else []
    try:
        if number is not None:
            return await _append_numbered(call, stream, messages, number, closing=closing)
        if messages and stream.closed:
            raise StreamSealed(str(stream.info.name))
        if messages:
            stream = await _append_plain(call, stream, messages, headers.get("stream-seq"))
        if closing:
            await front.run(partial(front.store.streams.seal, stream.info.id))
    except StreamSealed:
        raise await _closed(call) from None
    await front.run(partial(touch, front, stream))
    return Response(status_code=204, headers=stream.tail_headers(closing=closing))


async def write(
    call: HttpCall,
    stream: DurableStream,
    messages: list[bytes],
    *,
    sequence: str | None = None,
    expected: int | None = None,
) -> int:
    """Append messages as one atomic unit. Returns the offset after the last one, once they are durable. Raises
    ConditionFailed if the stream does not hold `expected` events, StreamSealed, and what `Writer.write_batch`
    raises."""
    try:
        return await _write(call, stream, messages, sequence, expected)
    except Closed:  # nothing was appended: another request's failure closed the writer
        return await _write(call, stream, messages, sequence, expected)


async def _write(
    call: HttpCall, stream: DurableStream, messages: list[bytes], sequence: str | None, expected: int | None
) -> int:
    front = call.front
    table = _table(call, messages, sequence)
    front.broker.loads.admit(stream.info.id, table.num_rows, table.nbytes)
    if expected is not None:
        return await front.run(lambda: _write_alone(front.store, stream, table, expected))
    try:
        writer = await front.writers.get(stream.info)
        ack = await front.run(lambda: writer.writer.write_batch(table, atomic=True))
        await front.writers.until_done(ack)
        return max(each.stop for each in ack.result(0))
    except Exception as exc:
        front.writers.forget(stream.info, exc)
        raise


def _write_alone(store: Store, stream: DurableStream, table: pa.Table, expected: int) -> int:
    """Append by a new writer: a refused condition would end the pending appends of a shared writer."""
    writer = store.writer(stream.info.name)
    try:
        if writer.stream_id != stream.info.id:  # the name was given to another stream meanwhile
            raise StreamNotFound(str(stream.info.name))
        return max(each.stop for each in writer.write_batch(table, atomic=True, expected=expected).result())
    finally:
        with suppress(AnabranchError):  # the error was raised by `result` above
            writer.close()


def _checked(stream: DurableStream, headers: Headers, body: bytes) -> list[bytes]:
    kind = headers.get("content-type")
    if not kind:
        raise InvalidArgument("expected the Content-Type of the stream")
    if not same_type(kind, stream.config.content_type):
        raise HttpRefusal(
            409, "content_type_mismatch", f"the stream holds {stream.config.content_type}, not '{kind:.100}'"
        )
    messages = messages_of(stream.config, body)
    if not messages:
        raise InvalidArgument("the array is empty: expected at least one message")
    return messages


async def _append_plain(
    call: HttpCall, stream: DurableStream, messages: list[bytes], sequence: str | None
) -> DurableStream:
    while True:
        await _check_sequence(call, stream, sequence)
        expected = None if sequence is None else stream.tail
        try:
            return stream._replace(tail=await write(call, stream, messages, sequence=sequence, expected=expected))
        except ConditionFailed:
            # Another request has appended meanwhile: compare with its Stream-Seq.
            stream = await call.front.run(partial(load, call.front, str(stream.info.name)))


async def _check_sequence(call: HttpCall, stream: DurableStream, sequence: str | None) -> None:
    """Refuse a `Stream-Seq` that is not greater than the last one, compared as text."""
    if sequence is None:
        return
    last = await call.front.run(lambda: _last_sequence(call.front.store, stream))
    if last is not None and sequence <= last:
        raise HttpRefusal(409, "sequence_conflict", f"Stream-Seq '{sequence:.100}' is not after '{last:.100}'")


def _last_sequence(store: Store, stream: DurableStream) -> str | None:
    """The last `Stream-Seq`: the key of the last event that has one, searched backwards from the tail."""
    stop, rows = stream.tail, _SEQUENCE_ROWS_FIRST
    while stop > stream.head:
        start = max(stream.head, stop - rows)
        found = None
        with store.reader(stream.info.name, start=stream.cut(start), end=stream.cut(stop), columns=["key"]) as reader:
            while (batch := reader.read()) is not None:
                found = next((key for key in reversed(batch.column("key").to_pylist()) if key is not None), found)
        if found is not None:
            return str(found)
        stop, rows = start, rows * 4
    return None


async def _append_numbered(
    call: HttpCall, stream: DurableStream, messages: list[bytes], number: Numbered, *, closing: bool
) -> Response:
    """Append for a producer. An append that is sent again takes no effect. A request that only closes the stream is
    stored as an empty message."""
    front = call.front
    state = await front.run(lambda: _producer(call, stream, number))
    duplicate = state.epoch == number.epoch and number.sequence <= state.last
    if not duplicate:
        _check_number(state, number)
        if stream.closed:
            raise StreamSealed(str(stream.info.name))
        sequence = call.request.headers.get("stream-seq")
        await _check_sequence(call, stream, sequence)
        table = _table(call, messages or [b""], sequence)
        try:
            result = (await front.run(lambda: front.producers.append(stream.info, number, table))).result
        except OutOfSequence as exc:
            raise _gap(exc.expected, exc.actual) from exc
        except Fenced as exc:
            raise _stale(exc.fence) from exc
        stream = stream._replace(tail=max((each.stop for each in result.ranges), default=stream.tail))
        duplicate = result.duplicate
    if closing:
        await front.run(partial(front.store.streams.seal, stream.info.id))
    await front.run(partial(touch, front, stream))
    last = max(state.last, number.sequence) if state.epoch == number.epoch else number.sequence
    headers = {"Producer-Epoch": str(number.epoch), "Producer-Seq": str(last)}
    status = 204 if duplicate or not messages else 200
    return Response(status_code=status, headers={**stream.tail_headers(closing=closing), **headers})


def _producer(call: HttpCall, stream: DurableStream, number: Numbered) -> ProducerState:
    with call.front.store.catalog.reading() as txn:
        return txn.producer(stream.info.id, number.name) or ProducerState(number.epoch)


def _check_number(state: ProducerState, number: Numbered) -> None:
    if number.epoch < state.epoch:
        raise _stale(state.epoch)
    if number.epoch > state.epoch and number.sequence:
        raise InvalidArgument("a new Producer-Epoch begins with Producer-Seq 0")
    if number.epoch == state.epoch and number.sequence > state.last + 1:
        raise _gap(state.last + 1, number.sequence)


def _stale(epoch: int) -> HttpRefusal:
    return HttpRefusal(403, "fenced", f"the producer's epoch is {epoch} by now", Producer_Epoch=str(epoch))


def _gap(expected: int, actual: int) -> HttpRefusal:
    found = {"Producer_Expected_Seq": str(expected), "Producer_Received_Seq": str(actual)}
    return HttpRefusal(409, "out_of_sequence", f"the next Producer-Seq is {expected}, not {actual}", **found)


async def _closed(call: HttpCall) -> HttpRefusal:
    stream = await call.front.run(lambda: load(call.front, str(call.info.name)))
    text = {"Stream_Closed": "true", "Stream_Next_Offset": offset_text(stream.tail)}
    return HttpRefusal(409, "stream_closed", f"'{stream.info.name}' is closed", **text)


def _table(call: HttpCall, messages: list[bytes], sequence: str | None) -> pa.Table:
    """Messages as rows of a raw stream. The last one's key is the `Stream-Seq`."""
    now = call.front.store.runtime.clock.now()
    count = len(messages)
    columns = {"key": [None] * (count - 1) + [sequence], "time": [now] * count, "payload": messages}
    return pa.table(columns, schema=RAW_COLUMNS)
