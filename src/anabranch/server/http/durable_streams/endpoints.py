"""The endpoints of Durable Streams."""

from __future__ import annotations

from typing import Final

from anabranch.server.http.durable_streams.append import append_durable_stream
from anabranch.server.http.durable_streams.create import (
    create_durable_stream,
    delete_durable_stream,
    head_durable_stream,
)
from anabranch.server.http.durable_streams.read import read_durable_stream
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.openapi_parts import BINARY, COUNT, PRODUCER, TEXT, header_parameter, one_of, query_parameter

_PATH: Final = "/streams/{scope}/{name:path}"
_HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cross-Origin-Resource-Policy": "cross-origin"}
_BODY: Final = {"content": {"*/*": {"schema": BINARY}}}
_CLOSE: Final = header_parameter("Stream-Closed", TEXT, "`true`: nothing can be appended afterwards.")

DURABLE_STREAMS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *("PUT", _PATH, create_durable_stream),
        answers={
            "201": {"description": "The stream is created."},
            "200": {"description": "The stream existed, with the same settings."},
        },
        parameters=(
            header_parameter("Stream-TTL", COUNT, "Seconds from the last read or append until the stream is deleted."),
            header_parameter("Stream-Expires-At", TEXT, "When the stream is deleted (RFC 3339)."),
            _CLOSE,
            header_parameter("Stream-Forked-From", TEXT, "The path of the stream to fork."),
            header_parameter("Stream-Fork-Offset", TEXT, "The offset at which the fork is made; default: the tail."),
            header_parameter("Stream-Fork-Sub-Offset", COUNT, "And so many bytes, or JSON messages, more."),
        ),
        body=_BODY,
        headers=_HEADERS,
    ),
    Endpoint(
        *("POST", _PATH, append_durable_stream),
        answers={
            "204": {"description": "The append is durable."},
            "200": {"description": "The append of a producer is durable."},
        },
        operation="write",
        parameters=(
            header_parameter("Stream-Seq", TEXT, "Must sort after the last one, as text."),
            *PRODUCER,
            _CLOSE,
        ),
        body=_BODY,
        headers=_HEADERS,
    ),
    Endpoint(
        *("GET", _PATH, read_durable_stream),
        answers={
            "200": {"description": "What it holds.", "content": {"*/*": {"schema": {}}}},
            "204": {"description": "No data came in time, or the stream is closed."},
            "304": {"description": "As `If-None-Match` says."},
        },
        operation="read",
        parameters=(
            query_parameter("offset", TEXT, "`-1` (the default), `now`, or a `Stream-Next-Offset`."),
            query_parameter("live", one_of("long-poll", "sse"), "Wait at the tail for more."),
            query_parameter("cursor", TEXT, "The last `Stream-Cursor`."),
        ),
        headers=_HEADERS,
    ),
    Endpoint(
        *("HEAD", _PATH, head_durable_stream, {"200": {"description": "In the headers."}}, "read"),
        headers=_HEADERS,
    ),
    Endpoint(
        *("DELETE", _PATH, delete_durable_stream, {"204": {"description": "It is deleted."}}),
        headers=_HEADERS,
    ),
)
