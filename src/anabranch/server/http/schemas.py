"""The schemas of the requests and answers of events, streams, scopes and verbs, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch import limits
from anabranch.server.http.openapi_parts import (
    FLAG,
    INTEGER,
    NAME,
    NUMBER,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    described,
    list_of,
    object_of,
    page_of,
    reference,
)

_SAMPLED: Final = object_of(
    {
        "of": described(INTEGER, "How many events the request has."),
        "weight": described(NUMBER, "How many events each kept one stands for."),
        "rows": list_of(INTEGER, "The kept ones, from 0."),
    },
    required=("of", "weight"),
)
_STEP: Final = object_of(
    {
        "call": {
            **described(TEXT, "A verb, or `query`, which returns the rows of `sql`."),
            "examples": ["cuts.tail"],
        },
        "arguments": described(
            OBJECT,
            'The arguments of the verb, by name. `{"$ref": "cut"}` stands for the result '
            'of the step `cut`, `{"$ref": "job.id"}` for a member of it.',
        ),
        "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    },
    required=("call",),
    closed=True,
)
SCHEMAS: Final[Mapping[str, Any]] = {
    "Problem": object_of(
        {
            "type": TEXT,
            "title": TEXT,
            "status": INTEGER,
            "detail": TEXT,
            "code": described(TEXT, "Never changes for a kind of error: `stream_not_found`."),
            "fields": OBJECT,
        }
    ),
    "Event": described(
        OBJECT,
        "The columns of the stream. Times are ISO 8601; bytes are text, or base64 under `NAME_base64`; inside "
        "of arrays and objects they are text, or base64 after `base64:`. "
        "An event of a raw stream has `payload`, `key` and `time`.",
    ),
    "Events": {"oneOf": [reference("Event"), {"type": "array", "minItems": 1, "items": reference("Event")}]},
    "Appended": object_of(
        {
            "events": INTEGER,
            "pointers": list_of(TEXT),
            "ranges": list_of(object_of({"segment": TEXT, "start": INTEGER, "stop": INTEGER})),
            "sampled": described(_SAMPLED, "What the stream's load policy kept, if not all events."),
        },
        required=("events", "ranges"),
    ),
    "Page": object_of(
        {
            "events": list_of(reference("Event")),
            "cut": described(TEXT, "The position behind the page."),
            "next": described(TEXT_OR_NULL, "The page that follows."),
        }
    ),
    "Cut": object_of({"cut": TEXT}),
    "Scope": object_of({"name": TEXT, "tags": OBJECT, "created_at": TEXT}),
    "NewScope": object_of({"name": NAME, "tags": TEXTS, "exist_ok": FLAG}, required=("name",), closed=True),
    "Stream": object_of(
        {
            "name": TEXT,
            "id": TEXT,
            "columns": list_of(object_of({"name": TEXT, "type": TEXT})),
            "key": TEXT_OR_NULL,
            "time": TEXT_OR_NULL,
            "raw": FLAG,
            "tags": OBJECT,
            "created_at": TEXT,
            "sealed": FLAG,
            "epoch": INTEGER,
        }
    ),
    "NewStream": object_of(
        {
            "name": {"type": "string", "examples": ["iot/sensors"]},
            "schema": {"type": "string", "examples": ["sensor:string, at:timestamp, value:double"]},
            "key": TEXT,
            "time": TEXT,
            "scaling": {"description": "A number of segments, or a policy."},
            "tags": TEXTS,
            "retention": {},
            "exist_ok": FLAG,
        },
        required=("name",),
        closed=True,
    ),
    "Scopes": page_of("Scope"),
    "Streams": page_of("Stream"),
    "Arguments": described(OBJECT, "The arguments of the verb, by name."),
    "Result": object_of({"result": {}, "warnings": list_of(OBJECT)}, required=("result",)),
    "SqlQuery": object_of(
        {
            "sql": {"type": "string", "examples": ["SELECT device, max(celsius) FROM iot.sensors GROUP BY 1"]},
            "dialect": described(
                TEXT_OR_NULL, "The system whose SQL it is, such as `flink` or `trino`. Default: DuckDB's."
            ),
            "parameters": list_of(
                {"type": ["string", "number", "boolean", "null"]}, "The values of `?` or `$1`, `$2` …"
            ),
        },
        required=("sql",),
        closed=True,
    ),
    "SqlResult": object_of(
        {
            "columns": list_of(object_of({"name": TEXT, "type": described(TEXT, "The type in Arrow.")})),
            "rows": list_of(OBJECT, "At most 8 MiB; NDJSON, Arrow and Parquet have no limit."),
        }
    ),
    "Run": object_of(
        {
            "steps": {"type": "array", "minItems": 1, "maxItems": limits.RUN_STEPS_MAX, "items": _STEP},
            "transaction": {
                **described(FLAG, "All steps take effect together; if one fails, none does."),
                "default": False,
            },
            "request": described(TEXT, "As the header Idempotency-Key."),
        },
        required=("steps",),
        closed=True,
    ),
    "Results": object_of({"results": list_of({}), "warnings": list_of(OBJECT)}, required=("results",)),
}
