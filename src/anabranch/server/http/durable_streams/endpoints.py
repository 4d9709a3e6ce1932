"""The endpoints of Durable Streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.server.http.durable_streams.append import append
from anabranch.server.http.durable_streams.create import create, delete, head
from anabranch.server.http.durable_streams.read import read
from anabranch.server.http.endpoints import Endpoint

_PATH: Final = "/streams/{scope}/{name:path}"
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "cross-origin"}
_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer", "minimum": 0}
_BODY: Final = {"content": {"*/*": {"schema": {"type": "string", "format": "binary"}}}}


def _parameter(place: str, name: str, kind: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    return {"name": name, "in": place, "schema": kind, "description": description}


_CLOSE: Final = _parameter("header", "Stream-Closed", _TEXT, "`true`: nothing can be appended afterwards.")

DURABLE_STREAMS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *("PUT", _PATH, create, None, "verb", "create_durable_stream", "Create a Durable Stream"),
        parameters=(
            _parameter("header", "Stream-TTL", _NUMBER, "Seconds that it stays after the last read or append."),
            _parameter("header", "Stream-Expires-At", _TEXT, "When it goes (RFC 3339)."),
            _CLOSE,
            _parameter("header", "Stream-Forked-From", _TEXT, "The path of the stream that it is a fork of."),
            _parameter("header", "Stream-Fork-Offset", _TEXT, "Up to where; without it, to the tail."),
            _parameter("header", "Stream-Fork-Sub-Offset", _NUMBER, "And so many bytes, or JSON messages, more."),
        ),
        body=_BODY,
        answers={
            "201": {"description": "It is created."},
            "200": {"description": "It existed, with the same settings."},
        },
        headers=_HEADERS,
    ),
    Endpoint(
        *("POST", _PATH, append, "write", "stream", "append_durable_stream", "Append to a Durable Stream, or close it"),
        parameters=(
            _parameter("header", "Stream-Seq", _TEXT, "Has to be after the last one, as text."),
            _parameter("header", "Producer-Id", _TEXT, "With the next two: the request takes effect once."),
            _parameter("header", "Producer-Epoch", _NUMBER, "A later one fences off the one before."),
            _parameter("header", "Producer-Seq", _NUMBER, "The request's number in the epoch, from 0."),
            _CLOSE,
        ),
        body=_BODY,
        answers={"204": {"description": "It is durable."}, "200": {"description": "It is durable, by a producer."}},
        headers=_HEADERS,
    ),
    Endpoint(
        *("GET", _PATH, read, "read", "stream", "read_durable_stream", "Read a Durable Stream from an offset on"),
        parameters=(
            _parameter("query", "offset", _TEXT, "`-1` (the default), `now`, or a `Stream-Next-Offset`."),
            _parameter("query", "live", {**_TEXT, "enum": ["long-poll", "sse"]}, "Wait at the tail for more."),
            _parameter("query", "cursor", _TEXT, "The last `Stream-Cursor`."),
        ),
        answers={
            "200": {"description": "What it holds.", "content": {"*/*": {"schema": {}}}},
            "204": {"description": "Nothing came in time, or the stream is closed."},
            "304": {"description": "As `If-None-Match` says."},
        },
        headers=_HEADERS,
    ),
    Endpoint(
        *("HEAD", _PATH, head, "read", "stream", "head_durable_stream", "What is known of a Durable Stream"),
        answers={"200": {"description": "In the headers."}},
        headers=_HEADERS,
    ),
    Endpoint(
        *("DELETE", _PATH, delete, None, "verb", "delete_durable_stream", "Delete a Durable Stream"),
        answers={"204": {"description": "It is deleted."}},
        headers=_HEADERS,
    ),
)
