"""`GET /streams/…`: what a stream holds from an offset on; with `?live=long-poll` it waits at the tail for the next messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from starlette.responses import Response

from anabranch import limits
from anabranch.errors import Closed, InvalidArgument
from anabranch.server.http.durable_streams.messages import joined
from anabranch.server.http.durable_streams.offsets import offset_of
from anabranch.server.http.durable_streams.pages import page_response, read_page, response_cursor
from anabranch.server.http.durable_streams.sse import server_sent_events
from anabranch.server.http.durable_streams.state import DurableStream, load, touch
from anabranch.server.http.front import HttpCall


async def read_durable_stream(call: HttpCall) -> Response:
    """Read a Durable Stream from an offset on. The answer is a page; with `live` it waits for more at the tail."""
    live, text = call.text("live"), _requested_offset(call)
    if live not in (None, "long-poll", "sse"):
        raise InvalidArgument(f"expected live=long-poll or live=sse, got '{live:.50}'")
    if live is not None and text is None:
        raise InvalidArgument(f"live={live} needs an offset")
    front = call.front
    stream = await front.run(lambda: load(front, str(call.info.name)))
    start = stream.head if text in (None, "-1") else stream.tail if text == "now" else offset_of(str(text))
    await front.run(partial(touch, front, stream))
    if live == "sse":
        return await server_sent_events(call, stream, start)
    if live == "long-poll" and start >= stream.tail:
        return await _long_poll(call, stream, start)
    if text == "now":
        headers = {**stream.tail_headers(), "Stream-Up-To-Date": "true", "Cache-Control": "no-store"}
        headers["Content-Type"] = stream.config.content_type
        return Response(joined(stream.config, []), headers=headers)
    page = await front.run(lambda: read_page(front.store, stream, start))
    return page_response(call, stream, page, live=live is not None)


def _requested_offset(call: HttpCall) -> str | None:
    found = call.request.query_params.getlist("offset")
    if len(found) > 1:
        raise InvalidArgument("there is more than one offset")
    if found and found[0] not in ("-1", "now"):
        offset_of(found[0])
    return found[0] if found else None


async def _long_poll(call: HttpCall, stream: DurableStream, start: int) -> Response:
    """What comes behind the tail, at the latest after `limits.DURABLE_POLL_S`; 204 if nothing came or the stream is
    closed."""
    front = call.front
    if not stream.closed:
        holding = front.guard.hold(call.principal, "followers")
        try:
            await _wait(call, stream, start)
        finally:
            holding.release()
        stream = await front.run(lambda: load(front, str(call.info.name)))
    if start < stream.tail:
        page = await front.run(lambda: read_page(front.store, stream, start))
        return page_response(call, stream, page, live=True)
    headers = {**stream.tail_headers(), "Stream-Up-To-Date": "true", "Cache-Control": "no-store"}
    headers["Stream-Cursor"] = response_cursor(call.text("cursor"))
    return Response(status_code=204, headers=headers)


async def _wait(call: HttpCall, stream: DurableStream, start: int) -> None:
    follower = await call.front.tails.follow(stream.info, stream.cut(start))
    try:
        with suppress(TimeoutError, Closed):  # the broker stops: the caller asks again elsewhere
            async with asyncio.timeout(limits.DURABLE_POLL_S):
                async for batch in follower.batches():
                    if batch is not None:
                        return
    finally:
        follower.close()
