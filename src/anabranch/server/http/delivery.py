"""What a follower of a stream is sent, part by part: in the body of an answer or in the messages of a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.errors import Closed, InvalidArgument
from anabranch.model.columns import select_columns
from anabranch.model.cut import StreamCut
from anabranch.model.stream import StreamInfo
from anabranch.reading.bounds import Place
from anabranch.server.events.arrow_encoder import arrow_batch, arrow_head, empty_batch, shown_batch, shown_schema
from anabranch.server.events.page import Range, place
from anabranch.server.events.row_encoder import cuts_of, encode_rows
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import HttpRefusal, problem_of
from anabranch.server.http.read import range_of, wanted_form
from anabranch.server.rights import StreamRight
from anabranch.server.tail.follower import Follower

Awaited = Callable[[], Awaitable[StreamInfo | None]]
"""Looks for a stream that may not exist yet, and checks that the caller may read it. Returns None while the stream may
still be created. Raises an error if waiting for it is of no use."""


class FollowRequest(NamedTuple):
    """What a follower asks for."""

    kind: str
    asked: Range
    start: Place


class FollowForm(NamedTuple):
    """How the events of a follower are encoded. Followers with an equal `key` share the bytes that `encode` returns.
    `schema` is the schema of an Arrow stream; None for other formats."""

    key: tuple[object, ...]
    encode: Callable[[pa.RecordBatch, StreamCut], list[bytes]]
    schema: pa.Schema | None = None


class Following(NamedTuple):
    """A stream that is followed."""

    info: StreamInfo
    follower: Follower
    form: FollowForm


def follow_request(call: HttpCall, *, kind: str | None = None) -> FollowRequest:
    """The request in the query and headers of a call. `kind` is the format; None stands for the one that the call
    names. Raises InvalidArgument, HttpRefusal."""
    form = kind or wanted_form(call, default="ndjson")
    if form == "json":
        form = "ndjson"  # a JSON array would never end
    if form == "parquet":
        raise HttpRefusal(
            406,
            "not_acceptable",
            "a stream is followed as application/x-ndjson, text/event-stream or application/vnd.apache.arrow.stream",
        )
    asked = range_of(call)
    if asked.end is not None or asked.limit is not None or asked.between is not None:
        raise InvalidArgument("?follow can't be combined with to, limit or between")
    start: Place = call.request.headers.get("last-event-id") or place(asked.start)
    return FollowRequest(form, asked, start)


async def begin(call: HttpCall, request: FollowRequest, found: StreamInfo | Awaited) -> Delivery:
    """Begin to follow a stream, or to wait for it. Raises what `SharedTails.follow` raises, and RateLimited."""
    holding = call.front.guard.hold(call.principal, "followers")
    try:
        if isinstance(found, StreamInfo):
            return Delivery(call, request, await _follow(call, request, found), None, holding.release)
        return Delivery(call, request, None, found, holding.release)
    except BaseException:
        holding.release()
        raise


class Delivery:
    """The parts that one follower is sent. Close it."""

    def __init__(
        self,
        call: HttpCall,
        request: FollowRequest,
        following: Following | None,
        awaited: Awaited | None,
        release: Callable[[], None],
    ) -> None:
        self.kind = request.kind
        self._call = call
        self._request = request
        self._following = following
        self._awaited = awaited
        self._release = release

    @property
    def position(self) -> StreamCut | None:
        """The cut after the last part; None while the stream does not exist."""
        return None if self._following is None else self._following.follower.position

    async def ready(self) -> None:
        """Return once the stream exists. Raises an error if waiting for it is of no use, and Closed."""
        async for _ in self._wait():
            pass

    async def parts(self) -> AsyncIterator[list[bytes] | None]:
        """The parts; None after `limits.FOLLOW_IDLE_S` without a part. Ends once the stream is sealed and all parts
        are returned. Raises what ends the follower, and Closed if the broker drains."""
        front = self._call.front
        async for _ in self._wait():
            yield None
        assert self._following is not None, "it was waited for"
        info, follower, form = self._following
        if form.schema is not None:
            yield [arrow_head(form.schema)]
        right = StreamRight(front.store, front.guard, self._call.principal, info.id, "read", verb="follow")
        async for batch in follower.batches():
            if front.draining:
                raise Closed("broker")
            await front.recheck(right)
            yield None if batch is None else batch.encoded(form.key, form.encode)

    def problem(self, error: Exception) -> dict[str, Any]:
        """Why the delivery ends, and the cut from which the caller may continue."""
        if isinstance(error, Closed):
            found = {"status": 503, "code": "draining", "detail": "the broker is stopping; follow again from the cut"}
        else:
            found = problem_of(error)
        if (position := self.position) is not None:
            found["cut"] = str(position)
        return found

    def empty_batch(self, problem: Mapping[str, Any] | None = None) -> bytes:
        """A batch of an Arrow stream without rows: a sign of life, or with `problem` the last one. Empty bytes while
        the stream does not exist, because its schema is not known."""
        schema = None if self._following is None else self._following.form.schema
        if schema is None:
            return b""
        return arrow_batch(empty_batch(schema), self.position, problem)

    def close(self) -> None:
        """Leave the stream. May be called again."""
        if self._following is not None:
            self._following.follower.close()
        self._release()

    async def _wait(self) -> AsyncIterator[None]:
        """Wait for the stream; yields after each `limits.FOLLOW_IDLE_S`."""
        if self._following is not None or self._awaited is None:
            return
        front, loop = self._call.front, asyncio.get_running_loop()
        idle_at = loop.time() + limits.FOLLOW_IDLE_S
        while (info := await self._awaited()) is None:
            await asyncio.wait((front.tails.closing,), timeout=limits.FOLLOW_AWAIT_S)
            if front.draining:
                raise Closed("broker")
            if loop.time() > idle_at:
                idle_at = loop.time() + limits.FOLLOW_IDLE_S
                yield None
        request = self._request
        # The stream was created after the request, so its head is the tail at the time of the request.
        if request.start == "tail":
            request = request._replace(start="head")
        self._following = await _follow(self._call, request, info)


async def _follow(call: HttpCall, request: FollowRequest, info: StreamInfo) -> Following:
    asked = request.asked
    names = select_columns(asked.columns, info.schema.columns)
    columns = None if asked.columns is None else tuple(names)
    form = _form(request.kind, info, columns, meta=asked.meta)
    follower = await call.front.tails.follow(info, request.start, by=asked.by, rate=asked.rate)
    return Following(info, follower, form)


def _form(kind: str, info: StreamInfo, columns: tuple[str, ...] | None, *, meta: bool) -> FollowForm:
    if kind == "arrow":
        schema = shown_schema(info.schema.columns, columns, meta=meta)
        key = (kind, tuple(schema.names), meta)
        return FollowForm(key, partial(_arrow, schema=schema), schema)
    encode = {"sse": _events, "socket": _messages, "ndjson": _lines}[kind]
    return FollowForm((kind, columns, meta), partial(encode, columns=columns, meta=meta))


def _lines(batch: pa.RecordBatch, after: StreamCut, *, columns: Sequence[str] | None, meta: bool) -> list[bytes]:
    rows = encode_rows(batch, after=after if meta else None, columns=columns)
    return _joined([row + b"\n" for row in rows])


def _events(batch: pa.RecordBatch, after: StreamCut, *, columns: Sequence[str] | None, meta: bool) -> list[bytes]:
    """Each event's id is the cut after it: a follower that sends the id as `Last-Event-ID` continues after the
    event."""
    return _joined(_with_ids(b"id: %b\ndata: %b\n\n", batch, after, columns, meta=meta))


def _messages(batch: pa.RecordBatch, after: StreamCut, *, columns: Sequence[str] | None, meta: bool) -> list[bytes]:
    """As `_events`, one message an event."""
    return _with_ids(b'{"id":"%b","data":%b}', batch, after, columns, meta=meta)


def _with_ids(
    form: bytes, batch: pa.RecordBatch, after: StreamCut, columns: Sequence[str] | None, *, meta: bool
) -> list[bytes]:
    rows = encode_rows(batch, after=after if meta else None, columns=columns)
    return [form % (each.encode(), row) for each, row in zip(cuts_of(batch, after), rows, strict=True)]


def _arrow(batch: pa.RecordBatch, after: StreamCut, *, schema: pa.Schema) -> list[bytes]:
    data, size = arrow_batch(shown_batch(batch, schema), after), limits.FOLLOW_SEND_BYTES
    return [data[start : start + size] for start in range(0, len(data), size)]


def _joined(rows: Sequence[bytes]) -> list[bytes]:
    """Rows joined to parts of about `limits.FOLLOW_SEND_BYTES`. A row is never split."""
    parts, open_part, size = [], [], 0
    for row in rows:
        open_part.append(row)
        size += len(row)
        if size >= limits.FOLLOW_SEND_BYTES:
            parts.append(b"".join(open_part))
            open_part, size = [], 0
    return parts + [b"".join(open_part)] if open_part else parts
