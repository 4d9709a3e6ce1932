"""Pages of a Durable Stream: its messages between two offsets."""

from __future__ import annotations

from typing import NamedTuple

from anabranch import limits
from anabranch.server.http.durable_streams.state import DurableStream
from anabranch.store.facade import Store


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
