"""Byte streams: how bytes are stored as events, and how to recognise a stream that holds bytes.

An event is a chunk of bytes and `until`, the number of bytes up to its end. `until` is stored as the event time, one µs
per byte, so the time index finds the chunk of a byte: the first whose `until` is greater than the byte's position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.errors import Conflict, InvalidArgument
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamInfo, StreamView

if TYPE_CHECKING:
    import pyarrow as pa

UNTIL: Final = "until"


def _columns() -> pa.Schema:
    import pyarrow as pa  # slow to load, and not needed to list streams

    from anabranch.model.columns import TIME_TYPE

    return pa.schema([(UNTIL, TIME_TYPE), ("bytes", pa.binary())])


BYTES: Final = StreamSchema(_columns, None, UNTIL)


def chunks(data: bytes, position: int, *, chunk_bytes: int = limits.BYTE_CHUNK_BYTES) -> pa.Table:
    """Events that hold `data`, whose first byte is at `position` in the stream. The data is not copied."""
    import pyarrow as pa

    from anabranch.core.binary_column import binary_column
    from anabranch.model.columns import TIME_TYPE

    edges = [*range(0, len(data), chunk_bytes), len(data)]
    until = pa.array([position + end for end in edges[1:]], pa.int64()).cast(TIME_TYPE)
    return pa.Table.from_arrays([until, binary_column(data, edges)], schema=BYTES.columns)


def is_byte_stream(info: StreamInfo) -> bool:
    """True if the stream was created by `Store.bytes`: it has those columns, and one segment that was never scaled."""
    return info.schema == BYTES and not info.epoch and info.next_number == 1


def may_hold_bytes(view: StreamView) -> bool:
    """True for a raw stream that never held an event and was never scaled: it may become a byte stream."""
    info = view.info
    fresh = info.schema.raw and not info.epoch and info.next_number == 1
    return fresh and not any(view.length(segment.id) for segment in view.current)


def no_byte_stream(info: StreamInfo) -> InvalidArgument:
    """The error for a stream of another kind."""
    return InvalidArgument(
        f"'{info.name}' is not a byte stream: create one with store.bytes(name, 'xb'), or from a raw stream that never held an "
        "event, and is never scaled or appended to"
    )


def became_bytes(name: object) -> Conflict:
    """The error for who wrote or read events of a raw stream that has become a byte stream."""
    return Conflict(f"'{name}' has become a byte stream: use it with store.bytes, or write to another stream")


def reject_byte_stream(info: StreamInfo) -> None:
    """Raise InvalidArgument if the stream holds bytes, since other events would be mixed with them."""
    if is_byte_stream(info):
        raise only_bytes(info.name)


def only_bytes(name: object) -> InvalidArgument:
    """The error for who would write events to a byte stream."""
    return InvalidArgument(
        f"'{name}' is a byte stream: write to it with store.bytes('{name}', 'ab') or: anabranch bytes put {name}"
    )
