"""Pages of a Durable Stream, its messages between two offsets, and how they are answered."""

from __future__ import annotations

import random
import time
from typing import Final, NamedTuple

from starlette.responses import Response

from anabranch import limits
from anabranch.server.http.durable_streams.messages import joined
from anabranch.server.http.durable_streams.offsets import offset_text
from anabranch.server.http.durable_streams.state import DurableStream
from anabranch.server.http.etags import names_tag
from anabranch.server.http.front import HttpCall
from anabranch.store.facade import Store

_INTERVAL_S: Final = 20
_EPOCH_S: Final = 1_728_432_000  # 2024-10-09, as the protocol has it
_JITTER_S: Final = 3_600


class Page(NamedTuple):
    """Messages from `start` on; `stop` is the offset behind them."""

    messages: list[bytes]
    start: int
    stop: int


def read_page(store: Store, stream: DurableStream, start: int) -> Page:
    """The messages from `start` on, up to the tail or to `limits.HTTP_PAGE_BYTES_MAX`. Raises Truncated."""
    messages: list[bytes] = []
    size, stop = 0, start
    if start >= stream.tail:
        return Page(messages, start, start)
    with store.reader(
        stream.info.name, start=stream.cut(start), end=stream.cut(stream.tail), columns=["payload"]
    ) as reader:
        while (batch := reader.read()) is not None:
            for payload, offset in zip(batch.column("payload"), batch.column("_offset").to_pylist(), strict=True):
                messages.append(payload.as_py() or b"")
                size, stop = size + len(messages[-1]), offset + 1
                if size >= limits.HTTP_PAGE_BYTES_MAX:
                    return Page(messages, start, stop)
    return Page(messages, start, stop)


def read_message(store: Store, stream: DurableStream, offset: int) -> list[bytes]:
    """The message at the offset, if the stream holds it."""
    start, end = stream.cut(offset), stream.cut(min(offset + 1, stream.tail))
    with store.reader(stream.info.name, start=start, end=end, columns=["payload"]) as reader:
        batch = reader.read()
        return [] if batch is None else [payload or b"" for payload in batch.column("payload").to_pylist()]


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


def response_cursor(asked: str | None) -> str:
    """`Stream-Cursor`: the number of the present interval, but always later than the number that the caller sent. For a
    while, live readers that wait at the same offset send identical requests, so that a cache can join them. Later the
    cursor changes, so that the cache does not return an outdated answer."""
    now = int((time.time() - _EPOCH_S) // _INTERVAL_S)
    if asked is None or not (asked.isascii() and asked.isdigit() and len(asked) < 16) or int(asked) < now:
        return str(now)
    return str(int(asked) + random.randint(1, _JITTER_S // _INTERVAL_S))
