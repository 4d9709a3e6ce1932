"""The schemas of the requests and answers of deployed queries, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.server.http.openapi_parts import INTEGER, TEXT, TEXT_OR_NULL, TEXTS, list_of, page_of, reference

_FILES: Final[dict[str, Any]] = {
    "files": {
        "type": "object",
        "additionalProperties": {"type": "string", "contentEncoding": "base64"},
        "description": "Wheels (.whl), WebAssembly modules (.wasm) and resources by name. An upgrade keeps them by default.",
    },
    "signature": {"type": "string", "description": "The signature that `anabranch queries sign` writes."},
}
_STARTING_OVER: Final[Mapping[str, Any]] = {
    "from": {
        "description": "Start over here: head, tail, a time or a cut; or a list with one for each source.",
        "anyOf": [
            {"type": ["string", "integer", "null"]},
            {"type": "array", "minItems": 1, "items": {"type": ["string", "integer"]}},
        ],
    },
    "by": {
        "type": "string",
        "enum": ["append", "event"],
        "description": "What a time means: the append time, or the event time.",
    },
    "replace": {"type": "boolean", "description": "With `from`: drop the earlier results."},
}
_DIALECT: Final = {
    "type": ["string", "null"],
    "description": "The system whose SQL it is, such as `flink`; the version has the translation. Default: Anabranch's.",
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
            "made": {
                "type": "array",
                "items": TEXT,
                "description": "The streams that it has made: what a deletion with its results deletes.",
            },
            "group": {"type": "string", "description": "Queries of different groups never share a driver."},
            "cpus": {"type": "number", "description": "Processors that a host reserves for the query."},
            "memory": {"type": "integer", "description": "Bytes of memory that a host reserves for the query."},
            "refused": {"type": ["string", "null"], "description": "While it waits: why a host has no room for it."},
            "standby": {"type": "string", "enum": ["warm", "hot"]},
            "standby_state": {
                "type": ["string", "null"],
                "description": "The state of the hot standby: none, behind, ready or refused.",
            },
            "standby_host": TEXT_OR_NULL,
            "standby_refused": {
                "type": ["string", "null"],
                "description": "Why the query can't have a hot standby, or no host has room for one.",
            },
            "replaces": {"type": ["string", "null"], "description": "For a replay: the query that it will replace."},
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
            "rows_per_s": {"type": "number", "description": "Events read per second, over the last seconds."},
            "lag": {"type": "integer", "description": "Events still to be read."},
            "lag_s": {
                "type": "number",
                "description": "The age of the oldest unread event; at most the time since the run's start.",
            },
            "written": INTEGER,
            "late": {"type": "integer", "description": "Events in the stream of late events."},
            "run_late": {"type": "integer", "description": "Events of this run that were late."},
            "run_shed": {"type": "integer", "description": "Events of this run that were left out to shed load."},
            "state_rows": INTEGER,
            "state_bytes": INTEGER,
            "batch_ms": {"type": "integer", "description": "How long the last micro-batch took."},
            "batch_rows": {"type": "integer", "description": "The events that the last micro-batch read."},
            "stages_ms": {
                "type": "object",
                "additionalProperties": INTEGER,
                "description": "The stages of the last micro-batch, by Spark's names.",
            },
            "operators": {
                "type": "array",
                "description": "The stateful operators.",
                "items": {
                    "type": "object",
                    "properties": {
                        "operator": {"type": "string", "description": "Spark's name for the operator."},
                        "rows": {"type": "integer", "description": "Rows in its state."},
                        "bytes": INTEGER,
                        "updated": {
                            "type": "integer",
                            "description": "Rows of state that the last micro-batch changed.",
                        },
                        "commit_ms": INTEGER,
                        "dropped": {"type": "integer", "description": "Rows of this run that were dropped as late."},
                    },
                },
            },
            "segments": {
                "type": "array",
                "description": "The segments of the streams that it reads.",
                "items": {
                    "type": "object",
                    "properties": {
                        "stream": TEXT,
                        "segment": TEXT,
                        "lag": {"type": "integer", "description": "Events still to be read."},
                        "event_time": {
                            "type": ["string", "null"],
                            "description": "The event time up to which it is read.",
                        },
                        "skew_s": {
                            "type": ["number", "null"],
                            "description": "By how much that is behind the foremost segment of the stream.",
                        },
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
            "digest": {"type": "string", "description": "The SHA-256 of the version's SQL, parameters and files."},
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
                        "size": {"type": "integer", "description": "The size in bytes."},
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
                        "default": {"type": ["string", "null"], "description": "null: the parameter needs a value."},
                        "meaning": TEXT,
                    },
                }
            ),
            "sql": TEXT,
            "saved_at": {"type": ["string", "null"], "description": "null: the template comes with the package."},
        },
    },
    "NewQuery": {
        "type": "object",
        "description": "With `sql`, or with `template`.",
        "properties": {
            "sql": {"type": "string", "description": "CREATE STREAM statements."},
            "dialect": _DIALECT,
            "template": {"type": "string", "description": "The name of the template whose statements to deploy."},
            "parameters": TEXTS,
            "trigger": {"type": ["string", "integer"], "examples": ["1s"], "description": "A duration, or µs."},
            "start": {"type": "boolean", "description": "Whether to start the query. Default: true."},
            "standby": {
                "type": "string",
                "enum": ["warm", "hot"],
                "description": "What takes over when a driver or host ends. Default: unchanged; `warm` for a new query.",
            },
            "group": {
                "type": "string",
                "description": "Queries of different groups never share a driver. Default: unchanged; `default` for a new query.",
            },
            "cpus": {
                "type": "number",
                "minimum": 0,
                "description": "Processors that a host reserves for the query. Default: unchanged; 0.1 for a new query.",
            },
            "memory": {
                "type": ["string", "integer"],
                "examples": ["500MB"],
                "description": "Memory that a host reserves for the query. Default: unchanged; 150 MB for a new query.",
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
            "dialect": _DIALECT,
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
            "dialect": _DIALECT,
            "parameters": {"type": "object", "additionalProperties": TEXT, "description": "Default: unchanged."},
            "trigger": {"type": ["string", "integer"], "description": "A duration, or µs. Default: unchanged."},
            **_FILES,
            **_STARTING_OVER,
            "replay": {
                **_STARTING_OVER["from"],
                "description": "Recompute all results from here, and replace the present ones once caught up.",
            },
            "keep": {"type": "boolean", "description": "With `replay`: keep the earlier results. Default: true."},
        },
        "additionalProperties": False,
    },
    "UpgradePlan": {
        "type": "object",
        "required": ["version", "statements"],
        "properties": {
            "version": {
                "type": "integer",
                "description": "The version that the checkpoints belong to; 0 if there are none.",
            },
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
            "batch": {"type": "integer", "description": "The state is as of the end of this micro-batch."},
            "rows": list_of(
                {
                    "type": "object",
                    "required": ["operator", "part", "key", "value"],
                    "properties": {
                        "operator": {**TEXT, "description": "Spark's name for the operator."},
                        "part": {
                            **TEXT,
                            "description": "A side of a join, a variable of a stateful function, or `state`.",
                        },
                        "key": {"type": "object"},
                        "value": {"type": "object"},
                    },
                }
            ),
            "more": {"type": "boolean", "description": "More rows match."},
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
                            "description": "Streams that it reads as tables.",
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
