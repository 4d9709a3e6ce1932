"""The schemas of the requests and answers of events, streams, scopes and verbs, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch import limits
from anabranch.server.http.openapi_parts import (
    FLAG,
    INTEGER,
    NAME,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    list_of,
    page_of,
    reference,
)

SCHEMAS: Final[Mapping[str, Any]] = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "fields"],
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": INTEGER,
            "detail": TEXT,
            "code": {"type": "string", "description": "Never changes for a kind of error: `stream_not_found`."},
            "fields": {"type": "object"},
        },
    },
    "Event": {
        "type": "object",
        "description": "The columns of the stream. Times are ISO 8601; bytes are text, or base64 under `NAME_base64`; inside "
        "of arrays and objects they are text, or base64 after `base64:`. "
        "An event of a raw stream has `payload`, `key` and `time`.",
    },
    "Events": {
        "oneOf": [reference("Event"), {"type": "array", "minItems": 1, "items": reference("Event")}],
    },
    "Appended": {
        "type": "object",
        "required": ["events", "ranges"],
        "properties": {
            "events": INTEGER,
            "pointers": list_of(TEXT),
            "ranges": list_of(
                {
                    "type": "object",
                    "required": ["segment", "start", "stop"],
                    "properties": {"segment": TEXT, "start": INTEGER, "stop": INTEGER},
                }
            ),
            "sampled": {
                "type": "object",
                "description": "What the stream's load policy kept, if not all events.",
                "required": ["of", "weight"],
                "properties": {
                    "of": {"type": "integer", "description": "How many events the request has."},
                    "weight": {"type": "number", "description": "How many events each kept one stands for."},
                    "rows": {"type": "array", "items": INTEGER, "description": "The kept ones, from 0."},
                },
            },
        },
    },
    "Page": {
        "type": "object",
        "required": ["events", "cut", "next"],
        "properties": {
            "events": list_of(reference("Event")),
            "cut": {"type": "string", "description": "The position behind the page."},
            "next": {"type": ["string", "null"], "description": "The page that follows."},
        },
    },
    "Cut": {"type": "object", "required": ["cut"], "properties": {"cut": TEXT}},
    "Scope": {
        "type": "object",
        "required": ["name", "tags", "created_at"],
        "properties": {"name": TEXT, "tags": {"type": "object"}, "created_at": TEXT},
    },
    "NewScope": {
        "type": "object",
        "required": ["name"],
        "properties": {"name": NAME, "tags": TEXTS, "exist_ok": FLAG},
        "additionalProperties": False,
    },
    "Stream": {
        "type": "object",
        "required": ["name", "id", "columns", "key", "time", "raw", "tags", "created_at", "sealed", "epoch"],
        "properties": {
            "name": TEXT,
            "id": TEXT,
            "columns": list_of(
                {
                    "type": "object",
                    "required": ["name", "type"],
                    "properties": {"name": TEXT, "type": TEXT},
                }
            ),
            "key": TEXT_OR_NULL,
            "time": TEXT_OR_NULL,
            "raw": FLAG,
            "tags": {"type": "object"},
            "created_at": TEXT,
            "sealed": FLAG,
            "epoch": INTEGER,
        },
    },
    "NewStream": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "examples": ["iot/sensors"]},
            "schema": {"type": "string", "examples": ["sensor:string, at:timestamp, value:double"]},
            "key": TEXT,
            "time": TEXT,
            "scaling": {"description": "A number of segments, or a policy."},
            "tags": TEXTS,
            "retention": {},
            "exist_ok": FLAG,
        },
        "additionalProperties": False,
    },
    "Scopes": page_of("Scope"),
    "Streams": page_of("Stream"),
}
CALL_SCHEMAS: Final[Mapping[str, Any]] = {
    "Arguments": {"type": "object", "description": "The arguments of the verb, by name."},
    "Result": {
        "type": "object",
        "required": ["result"],
        "properties": {"result": {}, "warnings": {"type": "array", "items": {"type": "object"}}},
    },
    "SqlQuery": {
        "type": "object",
        "required": ["sql"],
        "properties": {
            "sql": {"type": "string", "examples": ["SELECT device, max(celsius) FROM iot.sensors GROUP BY 1"]},
            "dialect": {
                "type": ["string", "null"],
                "description": "The system whose SQL it is, such as `flink` or `trino`. Default: DuckDB's.",
            },
            "parameters": {
                "type": "array",
                "description": "The values of `?` or `$1`, `$2` …",
                "items": {"type": ["string", "number", "boolean", "null"]},
            },
        },
        "additionalProperties": False,
    },
    "SqlResult": {
        "type": "object",
        "required": ["columns", "rows"],
        "properties": {
            "columns": list_of(
                {
                    "type": "object",
                    "required": ["name", "type"],
                    "properties": {"name": TEXT, "type": {"type": "string", "description": "The type in Arrow."}},
                }
            ),
            "rows": {
                "type": "array",
                "description": "At most 8 MiB; NDJSON, Arrow and Parquet have no limit.",
                "items": {"type": "object"},
            },
        },
    },
    "Run": {
        "type": "object",
        "required": ["steps"],
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": limits.RUN_STEPS_MAX,
                "items": {
                    "type": "object",
                    "required": ["call"],
                    "properties": {
                        "call": {
                            "type": "string",
                            "description": "A verb, or `query`, which returns the rows of `sql`.",
                            "examples": ["cuts.tail"],
                        },
                        "arguments": {
                            "type": "object",
                            "description": 'The arguments of the verb, by name. `{"$ref": "cut"}` stands for the result '
                            'of the step `cut`, `{"$ref": "job.id"}` for a member of it.',
                        },
                        "name": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
                    },
                    "additionalProperties": False,
                },
            },
            "transaction": {
                "type": "boolean",
                "default": False,
                "description": "All steps take effect together; if one fails, none does.",
            },
            "request": {"type": "string", "description": "As the header Idempotency-Key."},
        },
        "additionalProperties": False,
    },
    "Results": {
        "type": "object",
        "required": ["results"],
        "properties": {
            "results": {"type": "array", "items": {}},
            "warnings": {"type": "array", "items": {"type": "object"}},
        },
    },
}
