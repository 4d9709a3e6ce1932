"""All endpoints, with their OpenAPI descriptions."""

from __future__ import annotations

from typing import Final

from anabranch.server.http import resources
from anabranch.server.http.append import append
from anabranch.server.http.bytes.endpoints import BYTES_ENDPOINTS
from anabranch.server.http.bytes.upload_page import upload_page
from anabranch.server.http.calls import call_verb, run_verbs
from anabranch.server.http.docs import docs_page, openapi_document
from anabranch.server.http.durable_streams.endpoints import DURABLE_STREAMS
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.follow import read_or_follow
from anabranch.server.http.follow_socket import follow_socket
from anabranch.server.http.influx.endpoints import INFLUX
from anabranch.server.http.openapi_parts import (
    BINARY,
    BY,
    EVENT_ANSWER,
    FLAG,
    KEY,
    OF_KEY,
    PAGE,
    PLACE,
    PRODUCER,
    READ,
    READ_ANSWERS,
    READ_TYPES,
    TEXT,
    header_parameter,
    json_answer,
    json_content,
    one_of,
    query_parameter,
    reference,
)
from anabranch.server.http.prometheus.endpoints import PROMETHEUS
from anabranch.server.http.queries.endpoints import QUERIES
from anabranch.server.http.query import query
from anabranch.server.http.query_result import ENCODERS
from anabranch.server.http.read import TYPES
from anabranch.server.http.resources import latest_event
from anabranch.server.steps import SUMMARY

SCOPES: Final = "/v1/scopes"
SCOPE: Final = "/v1/scopes/{scope}"
STREAMS: Final = "/v1/streams"
STREAM: Final = "/v1/streams/{scope}/{name}"
EVENTS: Final = f"{STREAM}/events"
_EVENT_TYPES: Final = {
    "application/json": {"schema": reference("Events")},
    "application/x-ndjson": {"schema": TEXT},
    "application/vnd.apache.arrow.stream": {"schema": BINARY},
    "application/octet-stream": {"schema": BINARY},
}
_APPEND: Final = (
    query_parameter("atomic", FLAG, "All events become visible at once or not at all."),
    *PRODUCER,
    header_parameter("Anabranch-Key", TEXT, "Of a raw event: its routing key, percent-encoded."),
    header_parameter("Anabranch-Time", TEXT, "Of a raw event: its event time."),
)

_RESULT_TYPES: Final = {
    TYPES["json"]: {"schema": reference("SqlResult")},
    **{TYPES[form]: READ_TYPES[TYPES[form]] for form in ("ndjson", "arrow", "parquet")},
}
_SQL_TYPES: Final = {"application/json": {"schema": reference("SqlQuery")}, "application/sql": {"schema": TEXT}}

_RESULT: Final = json_answer("Result", "What the verb returns.")
_DELETED: Final = {"204": {"description": "It is deleted."}}

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *("POST", EVENTS, append, json_answer("Appended", "All events are durable."), "write"),
        parameters=_APPEND,
        body={"required": True, "content": _EVENT_TYPES},
    ),
    Endpoint(
        *("GET", EVENTS, read_or_follow, READ_ANSWERS, "read", "read"),
        parameters=READ,
        socket=follow_socket,
    ),
    Endpoint(
        *("GET", f"{STREAM}/latest", latest_event, EVENT_ANSWER, "read"),
        parameters=(OF_KEY,),
    ),
    Endpoint(
        *("GET", f"{STREAM}/cut", resources.get_cut, json_answer("Cut", "The cut."), "read"),
        parameters=(query_parameter("at", TEXT, f"{PLACE} Default: `tail`."), BY),
    ),
    *BYTES_ENDPOINTS,
    Endpoint(
        "POST", f"{STREAM}:{{verb}}", resources.call_stream, _RESULT, parameters=(KEY,), body=json_content("Arguments")
    ),
    Endpoint("GET", STREAM, resources.get_stream, json_answer("Stream", "The stream.")),
    Endpoint("DELETE", STREAM, resources.delete_stream, _DELETED, parameters=(KEY,)),
    Endpoint(
        *("GET", STREAMS, resources.list_streams, json_answer("Streams", "A page of streams, in name order.")),
        parameters=(
            *PAGE,
            query_parameter("scope", TEXT, "Only the streams of this scope."),
            query_parameter("internal", FLAG, "Also the store's own streams."),
        ),
    ),
    Endpoint(
        *("POST", STREAMS, resources.create_stream, json_answer("Stream", "The new stream.", "201")),
        parameters=(KEY,),
        body={"required": True, **json_content("NewStream")},
    ),
    Endpoint(
        "POST", f"{SCOPE}:{{verb}}", resources.call_scope, _RESULT, parameters=(KEY,), body=json_content("Arguments")
    ),
    Endpoint("GET", SCOPE, resources.get_scope, json_answer("Scope", "The scope.")),
    Endpoint(
        *("DELETE", SCOPE, resources.delete_scope, _DELETED),
        parameters=(KEY, query_parameter("recursive", FLAG, "Delete its streams too.")),
    ),
    Endpoint(
        *("GET", SCOPES, resources.list_scopes, json_answer("Scopes", "A page of scopes, in name order.")),
        parameters=PAGE,
    ),
    Endpoint(
        *("POST", SCOPES, resources.create_scope, json_answer("Scope", "The new scope.", "201")),
        parameters=(KEY,),
        body={"required": True, **json_content("NewScope")},
    ),
    Endpoint(
        *("POST", "/v1/call/{verb}", call_verb, _RESULT, None, "call"),
        parameters=(KEY,),
        body=json_content("Arguments"),
    ),
    Endpoint(
        *("POST", "/v1/run", run_verbs, json_answer("Results", "What each step returns."), None, "run", SUMMARY),
        parameters=(KEY,),
        body={"required": True, **json_content("Run")},
    ),
    Endpoint(
        *("POST", "/v1/query", query, {"200": {"description": "The result.", "content": _RESULT_TYPES}}),
        parameters=(
            query_parameter("dialect", TEXT, "With SQL as the body: its dialect, such as `flink`. Default: DuckDB's."),
            query_parameter("format", one_of(*ENCODERS), "Instead of `Accept`."),
        ),
        body={"required": True, "content": _SQL_TYPES},
    ),
    Endpoint("GET", "/v1/openapi.json", openapi_document, name="openapi", public=True),
    Endpoint("GET", "/docs", docs_page, name="docs", public=True),
    Endpoint("GET", "/upload", upload_page, public=True),
    *QUERIES,
    *DURABLE_STREAMS,
    *INFLUX,
    *PROMETHEUS,
)
