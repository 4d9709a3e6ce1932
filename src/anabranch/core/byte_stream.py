"""Byte streams: how bytes become events, and how a stream is known to hold bytes.

An event is a chunk of bytes and `until`, the number of bytes up to its end. That number stands where the event time does,
one µs for each byte, so the time index finds the chunk of a byte: the first whose `until` is greater than its position.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamInfo

UNTIL: Final = "until"
BYTES: Final = StreamSchema.typed(pa.schema([(UNTIL, TIME_TYPE), ("bytes", pa.binary())]), time=UNTIL)


def chunks(data: memoryview, position: int, *, chunk_bytes: int = limits.BYTE_CHUNK_BYTES) -> pa.Table:
    """Events that hold `data`, whose first byte is at `position` of the stream."""
    begins = range(0, len(data), chunk_bytes)
    parts = [data[begin : begin + chunk_bytes] for begin in begins]
    ends = [position + begin + len(part) for begin, part in zip(begins, parts, strict=True)]
    until = pa.array(ends, pa.int64()).cast(TIME_TYPE)
    return pa.Table.from_arrays([until, pa.array(parts, pa.binary())], schema=BYTES.columns)


def holds_bytes(info: StreamInfo) -> bool:
    """True if the stream is one that `Store.bytes` made: its own columns, and one segment that was never scaled."""
    return info.schema == BYTES and not info.epoch and info.next_number == 1


def refuse_rows(info: StreamInfo) -> None:
    """Raise InvalidArgument where a stream holds bytes: rows of anybody else would stand among them."""
    if holds_bytes(info):
        raise InvalidArgument(
            f"'{info.name}' holds bytes and takes no events: write with store.bytes('{info.name}', 'ab') or: "
            f"anabranch bytes put {info.name}"
        )
