"""What the tables of endpoints share: schemas, parameters, bodies and answers as objects of OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from anabranch import limits
from anabranch.server.http.read import TYPES

TEXT: Final = {"type": "string"}
TEXT_OR_NULL: Final = {"type": ["string", "null"]}
TEXTS: Final = {"type": "object", "additionalProperties": TEXT}
INTEGER: Final = {"type": "integer"}
NUMBER: Final = {"type": "number"}
OBJECT: Final = {"type": "object"}
COUNT: Final = {"type": "integer", "minimum": 0}
FLAG: Final = {"type": "boolean"}
BINARY: Final = {"type": "string", "format": "binary"}
NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"}


def query_parameter(name: str, kind: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    """A parameter of the query."""
    return {"name": name, "in": "query", "schema": kind, "description": description}


def header_parameter(name: str, kind: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    """A parameter in a header."""
    return {"name": name, "in": "header", "schema": kind, "description": description}


def count_type(most: int, default: int | None = None) -> Mapping[str, Any]:
    """The schema of a number from 1 to `most`."""
    kind: dict[str, Any] = {"type": "integer", "minimum": 1, "maximum": most}
    return kind if default is None else {**kind, "default": default}


def reference(schema: str) -> Mapping[str, Any]:
    """The schema of this name."""
    return {"$ref": f"#/components/schemas/{schema}"}


def described(kind: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    """The schema with a description."""
    return {**kind, "description": description}


def one_of(*texts: str) -> Mapping[str, Any]:
    """The schema of a text that is one of these."""
    return {"type": "string", "enum": list(texts)}


def list_of(kind: Mapping[str, Any], description: str | None = None) -> Mapping[str, Any]:
    """The schema of a list."""
    found = {"type": "array", "items": kind}
    return found if description is None else described(found, description)


def object_of(
    members: Mapping[str, Any], *, required: Sequence[str] | None = None, closed: bool = False
) -> Mapping[str, Any]:
    """The schema of an object with these members. By default all are required, and others may be there too."""
    names = list(members if required is None else required)
    found: dict[str, Any] = {"type": "object", "properties": members}
    if names:
        found["required"] = names
    if closed:
        found["additionalProperties"] = False
    return found


def page_of(schema: str) -> Mapping[str, Any]:
    """The schema of a page of items, with the address of the next one."""
    return object_of({"items": list_of(reference(schema)), "next": TEXT_OR_NULL})


def json_content(schema: str) -> Mapping[str, Any]:
    """A body or an answer in JSON of this schema."""
    return {"content": {"application/json": {"schema": reference(schema)}}}


def json_answer(schema: str, description: str, status: str = "200") -> Mapping[str, Mapping[str, Any]]:
    """The answer of a call that succeeds."""
    return {status: {"description": description, **json_content(schema)}}


EVENT_ANSWER: Final = json_answer("Event", "The event; its pointer and its append time are in headers.")
PLACE: Final = "`head`, `tail`, a stream cut, an event pointer, a time (ISO 8601, µs since 1970, or `-15m`: ago)."
BY: Final = query_parameter("by", one_of("append", "event"), "What a time means: the append time, or the event time.")
KEY: Final = header_parameter(
    "Idempotency-Key", {"type": "string", "maxLength": 512}, "Repeating the request with the same key changes nothing."
)
OF_KEY: Final = {**query_parameter("key", TEXT, "The routing key."), "required": True}
PRODUCER: Final = (
    header_parameter(
        "Producer-Id", TEXT, "With the next two: the request takes effect once, however often it is sent."
    ),
    header_parameter("Producer-Epoch", COUNT, "A later epoch fences off earlier ones."),
    header_parameter("Producer-Seq", COUNT, "The request's number in the epoch, from 0."),
)
PAGE: Final = (
    query_parameter("limit", count_type(limits.CATALOG_PAGE_ROWS, limits.HTTP_PAGE_EVENTS), "Items on the page."),
    query_parameter("after", TEXT, "The last name of the previous page."),
    query_parameter("pattern", TEXT, "A glob, such as `sensor-*`."),
    query_parameter("tag", TEXT, "`owner` or `owner=plant-7`."),
)
READ_TYPES: Final = {
    TYPES["json"]: {"schema": reference("Page")},
    TYPES["ndjson"]: {"schema": TEXT},
    TYPES["arrow"]: {"schema": BINARY},
    TYPES["parquet"]: {"schema": BINARY},
    TYPES["sse"]: {"schema": TEXT},
}
READ_ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "101": {"description": 'A WebSocket, whose messages are `{"id": CUT, "data": {…}}`: it always follows.'},
    "200": {"description": "The events.", "content": READ_TYPES},
}
READ: Final = (
    query_parameter("from", TEXT, f"Where to begin: {PLACE} Default: `head`."),
    query_parameter("to", TEXT, f"Where to end, exclusive: {PLACE} Default: the tail as of now."),
    BY,
    query_parameter(
        "limit",
        count_type(limits.HTTP_PAGE_EVENTS_MAX),
        "Events on a page. Default: 100 for JSON; other formats return all.",
    ),
    query_parameter("columns", TEXT, "Names, separated by commas."),
    query_parameter("between", TEXT, "`FROM..TO`: only events with an event time in it, TO exclusive."),
    query_parameter("format", one_of(*TYPES), "Instead of `Accept`."),
    query_parameter(
        "meta",
        FLAG,
        "Add `_pointer`, `_appended` and `_cut` to each event, or to Arrow `_segment`, `_offset`, `_appended`.",
    ),
    query_parameter(
        "follow", FLAG, "Keep the response open and wait for more: NDJSON or Arrow. Server-sent events always do."
    ),
    query_parameter(
        "events_per_s",
        {"type": "number", "exclusiveMinimum": 0},
        "The maximum number of events per second; not for a page.",
    ),
    query_parameter(
        "bytes_per_s", TEXT, "The maximum bytes of Arrow columns per second, such as `2MB`; not for a page."
    ),
    header_parameter("Last-Event-ID", TEXT, "For `follow`: the cut to continue from."),
)
