"""`GET /streams/…`: what a stream holds from an offset on."""

from __future__ import annotations

from functools import partial

from starlette.responses import Response

from anabranch.errors import InvalidArgument
from anabranch.server.http.durable_streams.live import long_poll
from anabranch.server.http.durable_streams.messages import joined
from anabranch.server.http.durable_streams.offsets import offset_of
from anabranch.server.http.durable_streams.page_response import page_response
from anabranch.server.http.durable_streams.pages import read_page
from anabranch.server.http.durable_streams.sse import server_sent_events
from anabranch.server.http.durable_streams.state import load, touch
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
        return await long_poll(call, stream, start)
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
