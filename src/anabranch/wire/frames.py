"""The messages of a session: an exchange in which a broker holds something for one client, such as a group reader or a
transaction.

Each message is the metadata of one Flight message: the length of a JSON header (4 bytes, little-endian), the header,
and Arrow data as an IPC stream, or nothing. The client's requests are numbered from 1, and each gets one answer of the
same number, in order. Number 0 marks messages without an answer: messages that the client sends unasked, and questions
of the broker in the middle of a request.

The broker's first answer has the field `session`, and the client repeats it in every later message: a broker refuses a
message that a network repeats in another session.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.core.ipc_bounds import open_bounded
from anabranch.core.json_text import parse_json
from anabranch.errors import InvalidArgument

_LENGTH: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: its verb, its number, its fields (JSON), and Arrow data."""

    verb: str
    number: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    data: pa.Buffer | None = None

    def pack(self) -> pa.Buffer:
        """The message's bytes. Raises InvalidArgument for text that is not Unicode."""
        content = {"verb": self.verb, "number": self.number, "fields": self.fields}
        try:
            header = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError as exc:
            raise InvalidArgument(f"can't send text that is not Unicode: {exc.reason}") from exc
        if self.data is None:
            return pa.py_buffer(_LENGTH.pack(len(header)) + header)
        return pa.py_buffer(b"".join((_LENGTH.pack(len(header)), header, memoryview(self.data))))

    @classmethod
    def unpack(cls, message: pa.Buffer | None) -> Frame:
        """The message of these bytes. Raises InvalidArgument."""
        if message is None or message.size < _LENGTH.size:
            raise InvalidArgument("expected a message of a session: 4 bytes for the header's length, then the header")
        (length,) = _LENGTH.unpack(message.slice(0, _LENGTH.size).to_pybytes())
        end = _LENGTH.size + length
        if length > limits.SESSION_HEADER_BYTES_MAX or end > message.size:
            raise InvalidArgument(
                f"expected a header of at most {limits.SESSION_HEADER_BYTES_MAX:,} bytes within a message of {message.size:,}, "
                f"got a length of {length:,}"
            )
        header = _header(message.slice(_LENGTH.size, length).to_pybytes())
        verb, number, fields = header.get("verb"), header.get("number"), header.get("fields")
        if not isinstance(verb, str) or type(number) is not int or number < 0 or not isinstance(fields, dict):
            raise InvalidArgument("expected verb, number and fields in the header of a session's message")
        return cls(verb, number, fields, message.slice(end) if message.size > end else None)


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text)
    except ValueError as exc:
        raise InvalidArgument(f"the header of a session's message is not JSON: {exc}") from exc
    if not isinstance(header, dict):
        raise InvalidArgument("the header of a session's message is not a JSON object")
    return header


def pack_table(data: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Rows as an IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
    return sink.getvalue()


def unpack_table(data: pa.Buffer | None) -> pa.Table:
    """The validated rows of an IPC stream from the other side. Raises InvalidArgument."""
    if data is None:
        raise InvalidArgument("expected Arrow data with this message")
    try:
        batches = open_bounded(data)
        return pa.Table.from_batches(list(batches), batches.schema)
    except (pa.ArrowException, ValueError, OSError) as exc:
        raise InvalidArgument(f"the Arrow data of a message can't be read: {exc}") from exc


def unpack_batch(data: pa.Buffer | None) -> pa.RecordBatch:
    """The one batch of an IPC stream from a broker, without a copy. Raises InvalidArgument."""
    if data is None:
        raise InvalidArgument("expected Arrow data with this message")
    try:
        with pa.ipc.open_stream(data) as stream:
            return stream.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as exc:
        raise InvalidArgument(f"the Arrow data of a message can't be read: {exc}") from exc
