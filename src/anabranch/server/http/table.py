"""All endpoints, with their OpenAPI descriptions."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from anabranch.server.http import resources
from anabranch.server.http.append import append
from anabranch.server.http.bytes.endpoints import BYTES_ENDPOINTS
from anabranch.server.http.bytes.upload_page import upload_page
from anabranch.server.http.calls import call_verb, run_verbs
from anabranch.server.http.docs import docs_page, openapi_document
from anabranch.server.http.durable_streams.endpoints import DURABLE_STREAMS
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.follow import follow
from anabranch.server.http.follow_socket import follow_socket
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.endpoints import INFLUX
from anabranch.server.http.latest import latest
from anabranch.server.http.openapi_parts import (
    BINARY,
    BY,
    COUNT,
    FLAG,
    KEY,
    OF_KEY,
    PAGE,
    PLACE,
    READ,
    READ_ANSWERS,
    READ_TYPES,
    TEXT,
    header_parameter,
    json_answer,
    json_content,
    query_parameter,
    reference,
)
from anabranch.server.http.prometheus.endpoints import PROMETHEUS
from anabranch.server.http.queries.endpoints import QUERIES
from anabranch.server.http.query import query
from anabranch.server.http.query_result import ENCODERS
from anabranch.server.http.read import TYPES, follows, read
from anabranch.server.steps import SUMMARY

SCOPES: Final = "/v1/scopes"
SCOPE: Final = "/v1/scopes/{scope}"
STREAMS: Final = "/v1/streams"
STREAM: Final = "/v1/streams/{scope}/{name}"
EVENTS: Final = f"{STREAM}/events"


async def read_or_follow(call: HttpCall) -> Response:
    """Read events; with `?follow`, keep waiting for more where a read would end."""
    return await (follow(call) if follows(call) else read(call))


_EVENT_TYPES: Final = {
    "application/json": {"schema": reference("Events")},
    "application/x-ndjson": {"schema": TEXT},
    "application/vnd.apache.arrow.stream": {"schema": BINARY},
    "application/octet-stream": {"schema": BINARY},
}
_APPEND: Final = (
    query_parameter("atomic", FLAG, "All events become visible at once or not at all."),
    header_parameter(
        "Producer-Id", TEXT, "With the next two: the request takes effect once, however often it is sent."
    ),
    header_parameter("Producer-Epoch", COUNT, "A later epoch fences off earlier ones."),
    header_parameter("Producer-Seq", COUNT, "The request's number in the epoch, from 0."),
    header_parameter("Anabranch-Key", TEXT, "Of a raw event: its routing key, percent-encoded."),
    header_parameter("Anabranch-Time", TEXT, "Of a raw event: its event time."),
)

_RESULT_TYPES: Final = {
    TYPES["json"]: {"schema": reference("SqlResult")},
    **{TYPES[form]: READ_TYPES[TYPES[form]] for form in ("ndjson", "arrow", "parquet")},
}
_SQL_TYPES: Final = {"application/json": {"schema": reference("SqlQuery")}, "application/sql": {"schema": TEXT}}

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *("POST", EVENTS, append, "write", "stream", "append", "Append events; answered once they are durable"),
        parameters=_APPEND,
        body={"required": True, "content": _EVENT_TYPES},
        answers=json_answer("Appended", "All events are durable."),
    ),
    Endpoint(
        *("GET", EVENTS, read_or_follow, "read", "stream", "read", "Read events, or follow the stream"),
        parameters=READ,
        answers=READ_ANSWERS,
        socket=follow_socket,
    ),
    Endpoint(
        *("GET", f"{STREAM}/latest", latest, "read", "stream", "latest_event", "The last event with a routing key"),
        parameters=(OF_KEY,),
        answers=json_answer("Event", "The event; its pointer and its append time are in headers."),
    ),
    Endpoint(
        *("GET", f"{STREAM}/cut", resources.get_cut, "read", "stream", "get_cut", "The cut at a position"),
        parameters=(query_parameter("at", TEXT, f"{PLACE} Default: `tail`."), BY),
        answers=json_answer("Cut", "The cut."),
    ),
    *BYTES_ENDPOINTS,
    Endpoint(
        *("POST", f"{STREAM}:{{verb}}", resources.call_stream, None, "verb", "call_stream", "A verb of a stream"),
        parameters=(KEY,),
        body=json_content("Arguments"),
        answers=json_answer("Result", "What the verb returns."),
    ),
    Endpoint(
        *("GET", STREAM, resources.get_stream, None, "verb", "get_stream", "One stream"),
        answers=json_answer("Stream", "The stream."),
    ),
    Endpoint(
        *("DELETE", STREAM, resources.delete_stream, None, "verb", "delete_stream", "Delete a stream"),
        parameters=(KEY,),
        answers={"204": {"description": "It is deleted."}},
    ),
    Endpoint(
        *("GET", STREAMS, resources.list_streams, None, "verb", "list_streams", "The streams that the caller may read"),
        parameters=(
            *PAGE,
            query_parameter("scope", TEXT, "Only the streams of this scope."),
            query_parameter("internal", FLAG, "Also the store's own streams."),
        ),
        answers=json_answer("Streams", "A page of streams, in name order."),
    ),
    Endpoint(
        *("POST", STREAMS, resources.create_stream, None, "verb", "create_stream", "Create a stream"),
        parameters=(KEY,),
        body={"required": True, **json_content("NewStream")},
        answers=json_answer("Stream", "The new stream.", "201"),
    ),
    Endpoint(
        *("POST", f"{SCOPE}:{{verb}}", resources.call_scope, None, "verb", "call_scope", "A verb of a scope"),
        parameters=(KEY,),
        body=json_content("Arguments"),
        answers=json_answer("Result", "What the verb returns."),
    ),
    Endpoint(
        *("GET", SCOPE, resources.get_scope, None, "verb", "get_scope", "One scope"),
        answers=json_answer("Scope", "The scope."),
    ),
    Endpoint(
        *("DELETE", SCOPE, resources.delete_scope, None, "verb", "delete_scope", "Delete a scope"),
        parameters=(KEY, query_parameter("recursive", FLAG, "Delete its streams too.")),
        answers={"204": {"description": "It is deleted."}},
    ),
    Endpoint(
        *("GET", SCOPES, resources.list_scopes, None, "verb", "list_scopes", "The scopes that the caller may read"),
        parameters=PAGE,
        answers=json_answer("Scopes", "A page of scopes, in name order."),
    ),
    Endpoint(
        *("POST", SCOPES, resources.create_scope, None, "verb", "create_scope", "Create a scope"),
        parameters=(KEY,),
        body={"required": True, **json_content("NewScope")},
        answers=json_answer("Scope", "The new scope.", "201"),
    ),
    Endpoint(
        *("POST", "/v1/call/{verb}", call_verb, None, "verb", "call", "Call a verb of the store"),
        parameters=(KEY,),
        body=json_content("Arguments"),
        answers=json_answer("Result", "What the verb returns."),
    ),
    Endpoint(
        *("POST", "/v1/run", run_verbs, None, "verb", "run", SUMMARY),
        parameters=(KEY,),
        body={"required": True, **json_content("Run")},
        answers=json_answer("Results", "What each step returns."),
    ),
    Endpoint(
        *("POST", "/v1/query", query, None, "verb", "query", "Query streams in SQL, next to the data"),
        parameters=(
            query_parameter("dialect", TEXT, "With SQL as the body: its dialect, such as `flink`. Default: DuckDB's."),
            query_parameter("format", {"type": "string", "enum": list(ENCODERS)}, "Instead of `Accept`."),
        ),
        body={"required": True, "content": _SQL_TYPES},
        answers={"200": {"description": "The result.", "content": _RESULT_TYPES}},
    ),
    Endpoint("GET", "/v1/openapi.json", openapi_document, None, "open", "openapi", "This description"),
    Endpoint("GET", "/docs", docs_page, None, "open", "docs", "This description as a page"),
    Endpoint("GET", "/upload", upload_page, None, "open", "upload_page", "A page for uploading a file"),
    *QUERIES,
    *DURABLE_STREAMS,
    *INFLUX,
    *PROMETHEUS,
)
