"""The schemas of what the endpoints of deployed queries take and answer, as OpenAPI 3.1 has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.server.http.described import INTEGER, TEXT, TEXT_OR_NULL, TEXTS, list_of, page_of, reference

_FILES: Final[dict[str, Any]] = {
    "files": {
        "type": "object",
        "additionalProperties": {"type": "string", "contentEncoding": "base64"},
        "description": "Wheels (.whl), WebAssembly modules (.wasm) and resources by name. An upgrade keeps them by default.",
    },
    "signature": {"type": "string", "description": "What `anabranch queries sign` writes."},
}
_STARTING_OVER: Final[Mapping[str, Any]] = {
    "from": {
        "description": "Start over there: head, tail, a time, a cut; or a list of one for each source.",
        "anyOf": [
            {"type": ["string", "integer", "null"]},
            {"type": "array", "minItems": 1, "items": {"type": ["string", "integer"]}},
        ],
    },
    "by": {"type": "string", "enum": ["append", "event"], "description": "Which time a time is."},
    "replace": {"type": "boolean", "description": "With `from`: drop the earlier results."},
}
QUERY_SCHEMAS: Final[Mapping[str, Any]] = {
    "Queries": page_of("Query"),
    "Query": {
        "type": "object",
        "required": ["name", "state", "wanted", "version", "results", "progress", "error", "host"],
        "properties": {
            "name": TEXT,
            "state": {
                "type": "string",
                "enum": ["waiting", "starting", "running", "stopping", "stopped", "failed"],
            },
            "wanted": {"type": "string", "enum": ["running", "stopped", "deleted"]},
            "version": INTEGER,
            "created_at": TEXT,
            "changed_at": TEXT,
            "host": TEXT_OR_NULL,
            "restarts": {"type": "integer", "description": "Runs that failed in a row."},
            "retry_at": TEXT_OR_NULL,
            "error": TEXT_OR_NULL,
            "results": list_of(TEXT),
            "group": {"type": "string", "description": "Queries of different groups never share a driver."},
            "cpus": {"type": "number", "description": "Processors that a host sets aside for it."},
            "memory": {"type": "integer", "description": "Bytes that a host sets aside for it."},
            "refused": {"type": ["string", "null"], "description": "While it waits: why a host has no room for it."},
            "standby": {"type": "string", "enum": ["warm", "hot"]},
            "standby_state": {
                "type": ["string", "null"],
                "description": "Of a hot standby: none, behind, ready or refused.",
            },
            "standby_host": TEXT_OR_NULL,
            "standby_refused": {
                "type": ["string", "null"],
                "description": "Why it can't have a hot standby, or a host has no room for it.",
            },
            "replaces": {"type": ["string", "null"], "description": "Of a replay: the query whose place it takes."},
            "progress": list_of(reference("StatementProgress")),
        },
    },
    "StatementProgress": {
        "type": "object",
        "required": ["target"],
        "description": "Counts of events; times are ISO 8601.",
        "properties": {
            "target": {"type": "string", "description": "The stream of its results."},
            "state": TEXT,
            "batch": {"type": "integer", "description": "The number of the last micro-batch, or -1."},
            "watermark": {"type": ["string", "null"], "description": "Windows that end before it are closed."},
            "read": INTEGER,
            "rows_per_s": {"type": "number", "description": "Read, over the last seconds."},
            "lag": {"type": "integer", "description": "Still to be read."},
            "lag_s": {"type": "number", "description": "How old the oldest of them is, at most since the run's start."},
            "written": INTEGER,
            "late": {"type": "integer", "description": "Kept in the stream of late events."},
            "run_late": {"type": "integer", "description": "Late in this run, or dropped as late."},
            "run_shed": {"type": "integer", "description": "Left out in this run to shed load."},
            "state_rows": INTEGER,
            "state_bytes": INTEGER,
            "batch_ms": {"type": "integer", "description": "How long the last micro-batch took."},
            "batch_rows": {"type": "integer", "description": "The events that it read."},
            "stages_ms": {
                "type": "object",
                "additionalProperties": INTEGER,
                "description": "Its stages, by Spark's names for them.",
            },
            "operators": {
                "type": "array",
                "description": "The stateful operators.",
                "items": {
                    "type": "object",
                    "properties": {
                        "operator": {"type": "string", "description": "Spark's name for it."},
                        "rows": {"type": "integer", "description": "In its state."},
                        "bytes": INTEGER,
                        "updated": {
                            "type": "integer",
                            "description": "Rows of state that the last micro-batch changed.",
                        },
                        "commit_ms": INTEGER,
                        "dropped": {"type": "integer", "description": "Rows left out as late, in this run."},
                    },
                },
            },
        },
    },
    "QueryProgress": {
        "type": "object",
        "required": ["state", "statements"],
        "properties": {
            "state": TEXT,
            "statements": list_of(reference("StatementProgress")),
        },
    },
    "QueryVersions": page_of("QueryVersion"),
    "QueryVersion": {
        "type": "object",
        "required": ["number", "digest", "created_at", "parameters", "trigger_us", "sql", "files", "signature"],
        "properties": {
            "number": INTEGER,
            "digest": {"type": "string", "description": "The SHA-256 of all that makes it."},
            "created_at": TEXT,
            "parameters": TEXTS,
            "trigger_us": INTEGER,
            "sql": TEXT,
            "files": list_of(
                {
                    "type": "object",
                    "required": ["name", "kind", "digest", "size"],
                    "properties": {
                        "name": TEXT,
                        "kind": {**TEXT, "enum": ["wheel", "wasm", "resource"]},
                        "digest": {"type": "string", "description": "The SHA-256 of its content."},
                        "size": {"type": "integer", "description": "In bytes."},
                    },
                }
            ),
            "signature": TEXT_OR_NULL,
        },
    },
    "QueryTemplates": page_of("QueryTemplate"),
    "QueryTemplate": {
        "type": "object",
        "required": ["name", "description", "parameters", "sql", "saved_at"],
        "properties": {
            "name": TEXT,
            "description": TEXT,
            "parameters": list_of(
                {
                    "type": "object",
                    "required": ["name", "type", "default", "meaning"],
                    "properties": {
                        "name": TEXT,
                        "type": TEXT,
                        "default": {"type": ["string", "null"], "description": "Without one it needs a value."},
                        "meaning": TEXT,
                    },
                }
            ),
            "sql": TEXT,
            "saved_at": {"type": ["string", "null"], "description": "null: it comes with the package."},
        },
    },
    "NewQuery": {
        "type": "object",
        "description": "With `sql`, or with `template`.",
        "properties": {
            "sql": {"type": "string", "description": "CREATE STREAM statements."},
            "template": {"type": "string", "description": "The name of a template, whose statements it has."},
            "parameters": TEXTS,
            "trigger": {"type": ["string", "integer"], "examples": ["1s"], "description": "A duration, or µs."},
            "start": {"type": "boolean", "description": "Whether it is to run. Default: true."},
            "standby": {
                "type": "string",
                "enum": ["warm", "hot"],
                "description": "What takes over when its driver or host ends. Default: as it is, at first warm.",
            },
            "group": {
                "type": "string",
                "description": "Queries of different groups never share a driver. Default: as it is, at first `default`.",
            },
            "cpus": {
                "type": "number",
                "minimum": 0,
                "description": "Processors that a host sets aside for it. Default: as it is, at first 0.1.",
            },
            "memory": {
                "type": ["string", "integer"],
                "examples": ["500MB"],
                "description": "Memory that a host sets aside for it. Default: as it is, at first 150 MB.",
            },
            **_FILES,
            **_STARTING_OVER,
        },
        "additionalProperties": False,
    },
    "QueryText": {
        "type": "object",
        "required": ["sql"],
        "properties": {
            "sql": TEXT,
            "parameters": TEXTS,
            "files": _FILES["files"],
        },
        "additionalProperties": False,
    },
    "QueryUpgrade": {
        "type": "object",
        "required": ["sql"],
        "properties": {
            "sql": TEXT,
            "parameters": {"type": "object", "additionalProperties": TEXT, "description": "Default: as they are."},
            "trigger": {"type": ["string", "integer"], "description": "A duration, or µs. Default: as it is."},
            **_FILES,
            **_STARTING_OVER,
            "replay": {
                **_STARTING_OVER["from"],
                "description": "Build all results anew from here, beside the present ones, which they then replace.",
            },
            "keep": {"type": "boolean", "description": "With replay: keep the earlier results. Default: true."},
        },
        "additionalProperties": False,
    },
    "UpgradePlan": {
        "type": "object",
        "required": ["version", "statements"],
        "properties": {
            "version": {"type": "integer", "description": "That the checkpoints belong to; 0 if there are none."},
            "statements": list_of(
                {
                    "type": "object",
                    "required": ["target", "line", "verdict", "reason"],
                    "properties": {
                        "target": TEXT,
                        "line": INTEGER,
                        "verdict": {**TEXT, "enum": ["keeps state", "restarts", "refused", "new", "removed"]},
                        "reason": TEXT,
                    },
                }
            ),
        },
    },
    "CommittedState": {
        "type": "object",
        "required": ["target", "batch", "rows", "more"],
        "properties": {
            "target": {**TEXT, "description": "The stream that the statement feeds."},
            "batch": {"type": "integer", "description": "After this micro-batch."},
            "rows": list_of(
                {
                    "type": "object",
                    "required": ["operator", "part", "key", "value"],
                    "properties": {
                        "operator": {**TEXT, "description": "Spark's name of it."},
                        "part": {
                            **TEXT,
                            "description": "A side of a join, a variable of a stateful function, or `state`.",
                        },
                        "key": {"type": "object"},
                        "value": {"type": "object"},
                    },
                }
            ),
            "more": {"type": "boolean", "description": "There are others that match."},
        },
    },
    "ValidatedQuery": {
        "type": "object",
        "required": ["statements", "parameters"],
        "properties": {
            "statements": list_of(
                {
                    "type": "object",
                    "properties": {
                        "target": {**TEXT, "description": "The stream that it feeds."},
                        "line": INTEGER,
                        "columns": {
                            "type": "object",
                            "additionalProperties": TEXT,
                            "description": "Arrow types.",
                        },
                        "sources": {"type": "array", "items": TEXT, "description": "Streams that it follows."},
                        "tables": {
                            "type": "array",
                            "items": TEXT,
                            "description": "Streams that it reads as they are.",
                        },
                        "sides": list_of(TEXT),
                        "feedback": {"type": "array", "items": TEXT, "description": "Streams that it feeds back to."},
                        "late": {"type": ["string", "null"], "description": "The stream of its late events."},
                    },
                }
            ),
            "parameters": list_of(
                {
                    "type": "object",
                    "properties": {
                        "name": TEXT,
                        "type": TEXT,
                        "default": TEXT_OR_NULL,
                        "line": INTEGER,
                    },
                }
            ),
        },
    },
    "StopQuery": {
        "type": "object",
        "properties": {"now": {"type": "boolean", "description": "Without finishing the micro-batch. Default: false."}},
        "additionalProperties": False,
    },
    "Rollback": {
        "type": "object",
        "properties": {
            "version": {"type": ["integer", "null"], "description": "Default: the one before."},
            **_STARTING_OVER,
        },
        "additionalProperties": False,
    },
}
