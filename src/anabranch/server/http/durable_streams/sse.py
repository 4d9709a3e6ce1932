"""`GET /streams/…?live=sse`: a stream as server-sent events: `data` with messages, `control` with the next offset."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from anabranch.errors import AnabranchError
from anabranch.server.http.durable_streams.config import StreamConfig
from anabranch.server.http.durable_streams.messages import joined
from anabranch.server.http.durable_streams.offsets import offset_text
from anabranch.server.http.durable_streams.pages import response_cursor
from anabranch.server.http.durable_streams.state import DurableStream
from anabranch.server.http.front import HttpCall
from anabranch.server.rights import StreamRight
from anabranch.server.tail.follower import Follower

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")


async def server_sent_events(call: HttpCall, stream: DurableStream, start: int) -> Response:
    """Messages from `start` on, until the caller goes or the stream is closed and read."""
    holding = call.front.guard.hold(call.principal, "followers")
    try:
        follower = await call.front.tails.follow(stream.info, stream.cut(start))
    except BaseException:
        holding.release()
        raise
    headers = {"Cache-Control": "no-cache"}
    if not _text(stream.config):
        headers["Stream-SSE-Data-Encoding"] = "base64"

    def release() -> None:
        follower.close()
        holding.release()

    return _Events(_events(call, stream, start, follower), headers, release)


class _Events(StreamingResponse):
    """Gives back what it holds, however it ends."""

    def __init__(self, content: AsyncIterator[bytes], headers: dict[str, str], release: Callable[[], None]) -> None:
        super().__init__(content, headers={**headers, "Content-Type": "text/event-stream"})
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


async def _events(call: HttpCall, stream: DurableStream, start: int, follower: Follower) -> AsyncIterator[bytes]:
    offset = start
    front = call.front
    right = StreamRight(front.store, front.guard, call.principal, call.info.id, "read", verb="follow")
    if offset >= stream.tail and not stream.closed:
        yield _control(call, offset, up_to_date=True)
    try:
        async with aclosing(follower.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                await front.recheck(right)
                data = b""
                if batch is not None:
                    ((_, offset),) = batch.after.offsets
                    data = _data(stream.config, batch.batch.column("payload").to_pylist())
                yield data + _control(call, offset, up_to_date=offset >= stream.tail)
    except AnabranchError:  # the broker stops, the stream is deleted, or the caller may no longer read: the client reconnects, and gets the error then
        return
    yield _event(b"control", msgspec.json.encode({"streamNextOffset": offset_text(offset), "streamClosed": True}))


def _data(config: StreamConfig, messages: list[bytes | None]) -> bytes:
    found = [each for each in messages if each]
    if not found:
        return b""
    body = joined(config, found)
    return _event(b"data", body if _text(config) else base64.b64encode(body))


def _control(call: HttpCall, offset: int, *, up_to_date: bool) -> bytes:
    found: dict[str, Any] = {"streamNextOffset": offset_text(offset)}
    found["streamCursor"] = response_cursor(call.text("cursor"))
    if up_to_date:
        found["upToDate"] = True
    return _event(b"control", msgspec.json.encode(found))


def _event(name: bytes, data: bytes) -> bytes:
    lines = b"".join(b"data:%b\n" % line for line in _LINE_END.split(data))
    return b"event: %b\n%b\n" % (name, lines)


def _text(config: StreamConfig) -> bool:
    """True if the messages are text: others are sent as base64."""
    return config.json or config.content_type.lower().startswith("text/")
