"""A page of a Durable Stream as an HTTP answer."""

from __future__ import annotations

from starlette.responses import Response

from anabranch.server.http.durable_streams.cursor import response_cursor
from anabranch.server.http.durable_streams.messages import joined
from anabranch.server.http.durable_streams.offsets import offset_text
from anabranch.server.http.durable_streams.pages import Page
from anabranch.server.http.durable_streams.state import DurableStream
from anabranch.server.http.etags import names_tag
from anabranch.server.http.front import HttpCall


def page_response(call: HttpCall, stream: DurableStream, page: Page, *, live: bool) -> Response:
    """The page, or 304 if the caller has it. The ETag changes when the stream is closed. Caches ask again before they use
    an answer: a stream may be deleted and created again under its name."""
    at_tail = page.stop >= stream.tail
    closed = at_tail and stream.closed
    tag = f'"{stream.info.id:016x}:{page.start}:{page.stop}{":c" if closed else ""}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Stream-Next-Offset": offset_text(page.stop)}
    if at_tail:
        headers["Stream-Up-To-Date"] = "true"
    if closed:
        headers["Stream-Closed"] = "true"
    if live:
        headers["Stream-Cursor"] = response_cursor(call.text("cursor"))
    if names_tag(call.request.headers.get("if-none-match", ""), tag, weak=True):
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = stream.config.content_type
    return Response(joined(stream.config, page.messages), headers=headers)
