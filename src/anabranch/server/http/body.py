"""Reads the body of a request, within its limits, and says what it is."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from anabranch import limits
from anabranch.errors import InvalidArgument, TooLarge
from anabranch.server.http.problem import HttpRefusal

FORM: Final = "application/x-www-form-urlencoded"
_FIELDS_MAX: Final = 1_000
_GZIP: Final = 16 + zlib.MAX_WBITS


def media_type(headers: Headers) -> str:
    """The media type of the body, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(
    receive: Receive, headers: Iterable[tuple[bytes, bytes]], *, bytes_max: int = limits.HTTP_BODY_BYTES_MAX
) -> bytes:
    """The whole body, decompressed. At most `bytes_max` bytes, before and after decompression. Raises TooLarge,
    InvalidArgument, HttpRefusal for an unknown encoding, and ClientDisconnect. The server limits the time, not
    this function."""
    length, encoding = None, b""
    for name, value in headers:
        if name == b"content-length":
            length = value
        elif name == b"content-encoding":
            encoding = value.strip().lower()
    if length is not None and length.isdigit() and int(length) > bytes_max:
        raise TooLarge("the body of a request", int(length), bytes_max)
    if encoding not in (b"", b"identity", b"gzip", b"deflate"):
        raise HttpRefusal(415, "unsupported_encoding", "expected Content-Encoding gzip, deflate or identity")
    data = await _gather(receive, bytes_max)
    if data and encoding in (b"gzip", b"deflate"):
        return _unpacked(data, _GZIP if encoding == b"gzip" else zlib.MAX_WBITS, bytes_max)
    return data


def form_fields(body: bytes) -> list[tuple[str, str]]:
    """The names and values of a form. Raises InvalidArgument."""
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX)
    except ValueError as exc:  # also UnicodeDecodeError
        raise InvalidArgument("the form can't be read: it is not UTF-8, or has too many fields") from exc


def sql_text(body: bytes, *, json_too: bool = True) -> str:
    """A body that is SQL. Raises InvalidArgument, also for JSON. `json_too`: the message says how to send JSON to this
    endpoint."""
    try:
        text = body.decode()
    except UnicodeDecodeError as exc:
        raise InvalidArgument(f"the SQL is not UTF-8: {exc.reason} at byte {exc.start}") from exc
    if text.lstrip().startswith("{"):
        remedy = "send JSON with Content-Type: application/json" if json_too else "send the SQL alone"
        raise InvalidArgument(f"the body looks like JSON, not SQL; {remedy}")
    return text


async def _gather(receive: Receive, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise TooLarge("the body of a request", size, bytes_max)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _unpacked(data: bytes, bits: int, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(bits)
    try:
        unpacked = unpacker.decompress(data, bytes_max + 1)
    except zlib.error as exc:
        raise InvalidArgument(f"the body can't be decompressed: {exc}") from exc
    if len(unpacked) > bytes_max:
        raise TooLarge("the decompressed body of a request", len(unpacked), bytes_max)
    if not unpacker.eof or unpacker.unused_data:
        raise InvalidArgument("the compressed body is cut off, or something follows it")
    return unpacked
