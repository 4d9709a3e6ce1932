"""Encodes one event of a raw stream without Arrow.

A lone durable event waits for everything done before its commit, and building a batch of one row takes ten times as
long as packing the same bytes.
"""

from __future__ import annotations

import struct
from typing import ClassVar, Final

import pyarrow as pa

from anabranch.model.append import TimeBounds
from anabranch.model.columns import RAW_COLUMNS
from anabranch.model.ids import Micros

# An encapsulated message of Arrow's IPC format: a marker, the length of the metadata, and the metadata, a flatbuffer.
# Its header says "metadata version 5, a record batch". Only the length of the body, the positions of its eight buffers
# (a pair each), and whether the key is null differ from row to row.
_MESSAGE: Final = struct.Struct("<iI33q")
_MARKER: Final = (-1, 33 * 8)
_TABLES: Final = (0x14, 0x500060016000C, 0xC000C0008, 0x1800040300)
_BATCH: Final = (
    0xC0018000A0000,
    0xA00080004,
    0x100000009C,
    1,
    8 << 32,
)  # ending with: one row; a vector of eight buffers
_NODES: Final = 3 << 32  # a vector of three columns follows: rows and nulls of each
_ENDS: Final = struct.Struct("<2i")  # start and end of one text
_TIME_ENDS: Final = struct.Struct("<q2i")
_NULL_KEY: Final = bytes(16)  # the validity bitmap (no values) and the ends
_ZEROS: Final = bytes(8)
_KEYLESS: Final = _MESSAGE.size + 16 + _TIME_ENDS.size  # where the payload of an event without a key begins


class RawEvent:
    """An event to be appended, used in place of a record batch of one row: it has the attributes that such a batch
    needs, and its encoded `message`, the same bytes that Arrow writes. The payload is copied."""

    __slots__ = ("key", "message", "nbytes", "time")

    num_rows: ClassVar = 1
    schema: ClassVar = RAW_COLUMNS

    def __init__(self, key: str | None, time: Micros, payload: bytes | memoryview) -> None:
        self.key = key
        self.time = time
        text = b"" if key is None else key.encode()
        weight, size = len(text), len(payload)
        self.nbytes = 16 + weight + size + (key is None)
        self.message = _message(text, key is None, time, payload, weight, size)

    @property
    def bounds(self) -> TimeBounds:
        """The event's time, as both bounds."""
        return TimeBounds(self.time, self.time)

    def batch(self) -> pa.RecordBatch:
        """The event as a record batch, which views the message."""
        return pa.ipc.read_record_batch(pa.py_buffer(self.message), RAW_COLUMNS)


def payload_of(message: bytes) -> bytes | None:
    """The payload, if the message holds an event without a key; None for any other message."""
    if len(message) < _KEYLESS:
        return None
    time, _, size = _TIME_ENDS.unpack_from(message, _KEYLESS - _TIME_ENDS.size)
    payload = message[_KEYLESS : _KEYLESS + size]
    return payload if _message(b"", True, time, payload, 0, len(payload)) == message else None


def _message(text: bytes, null: bool, time: int, payload: bytes | memoryview, weight: int, size: int) -> bytes:
    behind_ends = 16 if null else 8
    gap, rest = -weight % 8, -size % 8
    behind_key = behind_ends + weight + gap
    length = behind_key + 16 + size + rest
    key_buffers = (0, int(null), behind_ends - 8, 8, behind_ends, weight)
    time_buffers = (behind_key, 0, behind_key, 8)
    payload_buffers = (behind_key + 8, 0, behind_key + 8, 8, behind_key + 16, size)
    head = _MESSAGE.pack(
        *_MARKER, *_TABLES, length, *_BATCH, *key_buffers, *time_buffers, *payload_buffers, _NODES, 1, null, 1, 0, 1, 0
    )
    ends = _NULL_KEY if null else _ENDS.pack(0, weight)
    return b"".join((head, ends, text, _ZEROS[:gap], _TIME_ENDS.pack(time, 0, size), payload, _ZEROS[:rest]))
