"""`GET /streams/…?live=long-poll`: waits at the tail for the next messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response

from anabranch import limits
from anabranch.errors import Closed
from anabranch.server.http.durable_streams.cursor import response_cursor
from anabranch.server.http.durable_streams.page_response import page_response
from anabranch.server.http.durable_streams.pages import read_page
from anabranch.server.http.durable_streams.state import DurableStream, load
from anabranch.server.http.front import HttpCall


async def long_poll(call: HttpCall, stream: DurableStream, start: int) -> Response:
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
