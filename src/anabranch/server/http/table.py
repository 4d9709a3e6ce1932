"""All endpoints, with what OpenAPI says of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

from anabranch import limits
from anabranch.server.http import resources
from anabranch.server.http.append import append
from anabranch.server.http.bytes.endpoints import BYTES_ENDPOINTS
from anabranch.server.http.bytes.upload_page import upload_page
from anabranch.server.http.calls import call_verb
from anabranch.server.http.docs import docs_page, openapi_document
from anabranch.server.http.durable_streams.endpoints import DURABLE_STREAMS
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.follow import follow
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.endpoints import INFLUX
from anabranch.server.http.read import TYPES, read

SCOPES: Final = "/v1/scopes"
SCOPE: Final = "/v1/scopes/{scope}"
STREAMS: Final = "/v1/streams"
STREAM: Final = "/v1/streams/{scope}/{name}"
EVENTS: Final = f"{STREAM}/events"


async def read_or_follow(call: HttpCall) -> Response:
    """`?follow` goes on where a read would end."""
    return await (follow(call) if call.flag("follow") else read(call))


def _query(name: str, kind: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    return {"name": name, "in": "query", "schema": kind, "description": description}


def _header(name: str, kind: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    return {"name": name, "in": "header", "schema": kind, "description": description}


def _count(most: int, default: int | None = None) -> Mapping[str, Any]:
    kind: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": most}
    return kind if default is None else {**kind, "default": default}


def _json(schema: str) -> Mapping[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _ok(schema: str, description: str, status: str = "200") -> Mapping[str, Mapping[str, Any]]:
    return {status: {"description": description, **_json(schema)}}


_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_PLACE: Final = "`head`, `tail`, a stream cut, an event pointer, a time (ISO 8601, or µs since 1970)."
_BY: Final = _query("by", {"type": "string", "enum": ["append", "event"]}, "Which time a time is.")
_KEY: Final = _header(
    "Idempotency-Key", {"type": "string", "maxLength": 512}, "Asked again with it, nothing is done twice."
)
_PAGE: Final = (
    _query("limit", _count(limits.CATALOG_PAGE_ROWS, limits.HTTP_PAGE_EVENTS), "Items on the page."),
    _query("after", _TEXT, "The last name of the page before."),
    _query("pattern", _TEXT, "A glob, such as `sensor-*`."),
    _query("tag", _TEXT, "`owner` or `owner=plant-7`."),
)
_EVENT_TYPES: Final = {
    "application/json": {"schema": {"$ref": "#/components/schemas/Events"}},
    "application/x-ndjson": {"schema": _TEXT},
    "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
}
_READ_TYPES: Final = {
    TYPES["json"]: {"schema": {"$ref": "#/components/schemas/Page"}},
    TYPES["ndjson"]: {"schema": _TEXT},
    TYPES["arrow"]: {"schema": {"type": "string", "format": "binary"}},
    TYPES["parquet"]: {"schema": {"type": "string", "format": "binary"}},
    TYPES["sse"]: {"schema": _TEXT},
}
_READ: Final = (
    _query("from", _TEXT, f"Where to begin: {_PLACE} Default: `head`."),
    _query("to", _TEXT, f"Where to end, exclusive: {_PLACE} Default: the tail as of now."),
    _BY,
    _query(
        "limit",
        _count(limits.HTTP_PAGE_EVENTS_MAX),
        "Events on a page. JSON has pages of 100 without it; else all follow.",
    ),
    _query("columns", _TEXT, "Names with commas."),
    _query("between", _TEXT, "`FROM..TO`: only events with an event time in it, TO exclusive."),
    _query("format", {"type": "string", "enum": list(TYPES)}, "Instead of `Accept`."),
    _query("meta", _FLAG, "Add `_pointer`, `_appended` and `_cut` to each event."),
    _query("follow", _FLAG, "Go on and wait for more, as NDJSON or server-sent events."),
    _query(
        "events_per_s", {"type": "number", "exclusiveMinimum": 0}, "At most so many events per second; not of a page."
    ),
    _query("bytes_per_s", _TEXT, "At most so many bytes of Arrow columns per second, as `2MB`; not of a page."),
    _header("Last-Event-ID", _TEXT, "For `follow`: the cut to go on from."),
)
_APPEND: Final = (
    _query("atomic", _FLAG, "All events become visible at once or not at all."),
    _header("Producer-Id", _TEXT, "With the next two: the request takes effect once, however often it is sent."),
    _header("Producer-Epoch", {"type": "integer", "minimum": 0}, "A later one fences off the one before."),
    _header("Producer-Seq", {"type": "integer", "minimum": 0}, "The request's number in the epoch, from 0."),
    _header("Anabranch-Key", _TEXT, "Of a raw event: its routing key, percent-encoded."),
    _header("Anabranch-Time", _TEXT, "Of a raw event: its event time."),
)

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint(
        *("POST", EVENTS, append, "write", "stream", "append", "Append events; answered once they are durable"),
        parameters=_APPEND,
        body={"required": True, "content": _EVENT_TYPES},
        answers=_ok("Appended", "All events are durable."),
    ),
    Endpoint(
        *("GET", EVENTS, read_or_follow, "read", "stream", "read", "Read events, or follow the stream"),
        parameters=_READ,
        answers={"200": {"description": "The events.", "content": _READ_TYPES}},
    ),
    Endpoint(
        *("GET", f"{STREAM}/cut", resources.get_cut, "read", "stream", "get_cut", "The cut at a place"),
        parameters=(_query("at", _TEXT, f"{_PLACE} Default: `tail`."), _BY),
        answers=_ok("Cut", "The cut."),
    ),
    *BYTES_ENDPOINTS,
    Endpoint(
        *("POST", f"{STREAM}:{{verb}}", resources.call_stream, None, "verb", "call_stream", "A verb of a stream"),
        parameters=(_KEY,),
        body=_json("Arguments"),
        answers=_ok("Result", "What the verb returns."),
    ),
    Endpoint(
        *("GET", STREAM, resources.get_stream, None, "verb", "get_stream", "One stream"),
        answers=_ok("Stream", "The stream."),
    ),
    Endpoint(
        *("DELETE", STREAM, resources.delete_stream, None, "verb", "delete_stream", "Delete a stream"),
        parameters=(_KEY,),
        answers={"204": {"description": "It is deleted."}},
    ),
    Endpoint(
        *("GET", STREAMS, resources.list_streams, None, "verb", "list_streams", "The streams that the caller may read"),
        parameters=(
            *_PAGE,
            _query("scope", _TEXT, "Only those of one scope."),
            _query("internal", _FLAG, "Those too that the store keeps for itself."),
        ),
        answers=_ok("Streams", "A page of streams, in name order."),
    ),
    Endpoint(
        *("POST", STREAMS, resources.create_stream, None, "verb", "create_stream", "Create a stream"),
        parameters=(_KEY,),
        body={"required": True, **_json("NewStream")},
        answers=_ok("Stream", "The new stream.", "201"),
    ),
    Endpoint(
        *("POST", f"{SCOPE}:{{verb}}", resources.call_scope, None, "verb", "call_scope", "A verb of a scope"),
        parameters=(_KEY,),
        body=_json("Arguments"),
        answers=_ok("Result", "What the verb returns."),
    ),
    Endpoint(
        *("GET", SCOPE, resources.get_scope, None, "verb", "get_scope", "One scope"),
        answers=_ok("Scope", "The scope."),
    ),
    Endpoint(
        *("DELETE", SCOPE, resources.delete_scope, None, "verb", "delete_scope", "Delete a scope"),
        parameters=(_KEY, _query("recursive", _FLAG, "Its streams too.")),
        answers={"204": {"description": "It is deleted."}},
    ),
    Endpoint(
        *("GET", SCOPES, resources.list_scopes, None, "verb", "list_scopes", "The scopes that the caller may read"),
        parameters=_PAGE,
        answers=_ok("Scopes", "A page of scopes, in name order."),
    ),
    Endpoint(
        *("POST", SCOPES, resources.create_scope, None, "verb", "create_scope", "Create a scope"),
        parameters=(_KEY,),
        body={"required": True, **_json("NewScope")},
        answers=_ok("Scope", "The new scope.", "201"),
    ),
    Endpoint(
        *("POST", "/v1/call/{verb}", call_verb, None, "verb", "call", "Call a verb of the store"),
        parameters=(_KEY,),
        body=_json("Arguments"),
        answers=_ok("Result", "What the verb returns."),
    ),
    Endpoint("GET", "/v1/openapi.json", openapi_document, None, "open", "openapi", "This description"),
    Endpoint("GET", "/docs", docs_page, None, "open", "docs", "This description as a page"),
    Endpoint("GET", "/upload", upload_page, None, "open", "upload_page", "A page to upload a file on"),
    *DURABLE_STREAMS,
    *INFLUX,
)
