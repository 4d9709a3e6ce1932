"""Bodies of requests as the messages that are stored: one a request, or each element of a JSON array."""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.errors import InvalidArgument
from anabranch.server.http.durable_streams.config import StreamConfig

_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])
_VALUE: Final = msgspec.json.Decoder(msgspec.Raw)


def messages_of(config: StreamConfig, body: bytes) -> list[bytes]:
    """The messages of a body: of a JSON stream its value, or the elements of its array. Raises InvalidArgument."""
    if not config.json:
        return [body]
    try:
        body.decode()
        if body.lstrip()[:1] == b"[":
            return [bytes(each).strip() for each in _LIST.decode(body)]
        return [bytes(_VALUE.decode(body)).strip()]
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise InvalidArgument(f"the body is not JSON: {exc}") from exc


def joined(config: StreamConfig, messages: list[bytes]) -> bytes:
    """Messages as one body: a JSON array, or their bytes one after another."""
    return b"[" + b",".join(filter(None, messages)) + b"]" if config.json else b"".join(messages)
