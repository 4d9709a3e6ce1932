"""The last `Stream-Seq` of a stream: the key of the last event that has one."""

from __future__ import annotations

from anabranch.server.http.durable_streams.state import DurableStream
from anabranch.store.facade import Store

_ROWS_FIRST = 256


def last_sequence(store: Store, stream: DurableStream) -> str | None:
    """The last one, looked for from the tail on backwards; None if no event has one."""
    stop, rows = stream.tail, _ROWS_FIRST
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
