"""The schemas of the requests and answers of deployed queries, in OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.server.http.openapi_parts import (
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    described,
    list_of,
    object_of,
    one_of,
    page_of,
    reference,
)

_FILES: Final[dict[str, Any]] = {
    "files": {
        "type": "object",
        "additionalProperties": {"type": "string", "contentEncoding": "base64"},
        "description": "Wheels (.whl), WebAssembly modules (.wasm) and resources by name. An upgrade keeps them by default.",
    },
    "signature": described(TEXT, "The signature that `anabranch queries sign` writes."),
}
_STARTING_OVER: Final[Mapping[str, Any]] = {
    "from": {
        "description": "Start over here: head, tail, a time or a cut; or a list with one for each source.",
        "anyOf": [
            {"type": ["string", "integer", "null"]},
            {"type": "array", "minItems": 1, "items": {"type": ["string", "integer"]}},
        ],
    },
    "by": described(one_of("append", "event"), "What a time means: the append time, or the event time."),
    "replace": described(FLAG, "With `from`: drop the earlier results."),
}
_DIALECT: Final = described(
    TEXT_OR_NULL, "The system whose SQL it is, such as `flink`; the version has the translation. Default: Anabranch's."
)
_STATEMENT_PROGRESS: Final = object_of(
    {
        "target": described(TEXT, "The stream of its results."),
        "state": TEXT,
        "batch": described(INTEGER, "The number of the last micro-batch, or -1."),
        "watermark": described(TEXT_OR_NULL, "Windows that end before it are closed."),
        "read": INTEGER,
        "rows_per_s": described(NUMBER, "Events read per second, over the last seconds."),
        "lag": described(INTEGER, "Events still to be read."),
        "lag_s": described(NUMBER, "The age of the oldest unread event; at most the time since the run's start."),
        "written": INTEGER,
        "late": described(INTEGER, "Events in the stream of late events."),
        "run_late": described(INTEGER, "Events of this run that were late."),
        "run_shed": described(INTEGER, "Events of this run that were left out to shed load."),
        "state_rows": INTEGER,
        "state_bytes": INTEGER,
        "batch_ms": described(INTEGER, "How long the last micro-batch took."),
        "batch_rows": described(INTEGER, "The events that the last micro-batch read."),
        "stages_ms": {
            "type": "object",
            "additionalProperties": INTEGER,
            "description": "The stages of the last micro-batch, by Spark's names.",
        },
        "operators": list_of(
            object_of(
                {
                    "operator": described(TEXT, "Spark's name for the operator."),
                    "rows": described(INTEGER, "Rows in its state."),
                    "bytes": INTEGER,
                    "updated": described(INTEGER, "Rows of state that the last micro-batch changed."),
                    "commit_ms": INTEGER,
                    "dropped": described(INTEGER, "Rows of this run that were dropped as late."),
                },
                required=(),
            ),
            "The stateful operators.",
        ),
        "segments": list_of(
            object_of(
                {
                    "stream": TEXT,
                    "segment": TEXT,
                    "lag": described(INTEGER, "Events still to be read."),
                    "event_time": described(TEXT_OR_NULL, "The event time up to which it is read."),
                    "skew_s": {
                        "type": ["number", "null"],
                        "description": "By how much that is behind the foremost segment of the stream.",
                    },
                },
                required=(),
            ),
            "The segments of the streams that it reads.",
        ),
    },
    required=("target",),
)
NEW_QUERY: Final = object_of(
    {
        "sql": described(TEXT, "CREATE STREAM statements."),
        "dialect": _DIALECT,
        "template": described(TEXT, "The name of the template whose statements to deploy."),
        "parameters": TEXTS,
        "trigger": {"type": ["string", "integer"], "examples": ["1s"], "description": "A duration, or µs."},
        "start": described(FLAG, "Whether to start the query. Default: true."),
        "standby": described(
            one_of("warm", "hot"),
            "What takes over when a driver or host ends. Default: unchanged; `warm` for a new query.",
        ),
        "group": described(
            TEXT, "Queries of different groups never share a driver. Default: unchanged; `default` for a new query."
        ),
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
    required=(),
    closed=True,
)
QUERY_SCHEMAS: Final[Mapping[str, Any]] = {
    "Queries": page_of("Query"),
    "Query": object_of(
        {
            "name": TEXT,
            "state": one_of("waiting", "starting", "running", "stopping", "stopped", "failed"),
            "wanted": one_of("running", "stopped", "deleted"),
            "version": INTEGER,
            "created_at": TEXT,
            "changed_at": TEXT,
            "host": TEXT_OR_NULL,
            "restarts": described(INTEGER, "Runs that failed in a row."),
            "retry_at": TEXT_OR_NULL,
            "error": TEXT_OR_NULL,
            "results": list_of(TEXT),
            "made": list_of(TEXT, "The streams that it has made: what a deletion with its results deletes."),
            "group": described(TEXT, "Queries of different groups never share a driver."),
            "cpus": described(NUMBER, "Processors that a host reserves for the query."),
            "memory": described(INTEGER, "Bytes of memory that a host reserves for the query."),
            "refused": described(TEXT_OR_NULL, "While it waits: why a host has no room for it."),
            "standby": one_of("warm", "hot"),
            "standby_state": described(TEXT_OR_NULL, "The state of the hot standby: none, behind, ready or refused."),
            "standby_host": TEXT_OR_NULL,
            "standby_refused": described(
                TEXT_OR_NULL, "Why the query can't have a hot standby, or no host has room for one."
            ),
            "replaces": described(TEXT_OR_NULL, "For a replay: the query that it will replace."),
            "progress": list_of(reference("StatementProgress")),
        },
        required=("name", "state", "wanted", "version", "results", "progress", "error", "host"),
    ),
    "StatementProgress": described(_STATEMENT_PROGRESS, "Counts of events; times are ISO 8601."),
    "QueryProgress": object_of({"state": TEXT, "statements": list_of(reference("StatementProgress"))}),
    "QueryVersions": page_of("QueryVersion"),
    "QueryVersion": object_of(
        {
            "number": INTEGER,
            "digest": described(TEXT, "The SHA-256 of the version's SQL, parameters and files."),
            "created_at": TEXT,
            "parameters": TEXTS,
            "trigger_us": INTEGER,
            "sql": TEXT,
            "files": list_of(
                object_of(
                    {
                        "name": TEXT,
                        "kind": one_of("wheel", "wasm", "resource"),
                        "digest": described(TEXT, "The SHA-256 of its content."),
                        "size": described(INTEGER, "The size in bytes."),
                    }
                )
            ),
            "signature": TEXT_OR_NULL,
        }
    ),
    "QueryTemplates": page_of("QueryTemplate"),
    "QueryTemplate": object_of(
        {
            "name": TEXT,
            "description": TEXT,
            "parameters": list_of(
                object_of(
                    {
                        "name": TEXT,
                        "type": TEXT,
                        "default": described(TEXT_OR_NULL, "null: the parameter needs a value."),
                        "meaning": TEXT,
                    }
                )
            ),
            "sql": TEXT,
            "saved_at": described(TEXT_OR_NULL, "null: the template comes with the package."),
        }
    ),
    "NewQuery": described(NEW_QUERY, "With `sql`, or with `template`."),
    "QueryText": object_of(
        {"sql": TEXT, "dialect": _DIALECT, "parameters": TEXTS, "files": _FILES["files"]},
        required=("sql",),
        closed=True,
    ),
    "QueryUpgrade": object_of(
        {
            "sql": TEXT,
            "dialect": _DIALECT,
            "parameters": described(TEXTS, "Default: unchanged."),
            "trigger": {"type": ["string", "integer"], "description": "A duration, or µs. Default: unchanged."},
            **_FILES,
            **_STARTING_OVER,
            "replay": described(
                _STARTING_OVER["from"], "Recompute all results from here, and replace the present ones once caught up."
            ),
            "keep": described(FLAG, "With `replay`: keep the earlier results. Default: true."),
        },
        required=("sql",),
        closed=True,
    ),
    "UpgradePlan": object_of(
        {
            "version": described(INTEGER, "The version that the checkpoints belong to; 0 if there are none."),
            "statements": list_of(
                object_of(
                    {
                        "target": TEXT,
                        "line": INTEGER,
                        "verdict": one_of("keeps state", "restarts", "refused", "new", "removed"),
                        "reason": TEXT,
                    }
                )
            ),
        }
    ),
    "CommittedState": object_of(
        {
            "target": described(TEXT, "The stream that the statement feeds."),
            "batch": described(INTEGER, "The state is as of the end of this micro-batch."),
            "rows": list_of(
                object_of(
                    {
                        "operator": described(TEXT, "Spark's name for the operator."),
                        "part": described(TEXT, "A side of a join, a variable of a stateful function, or `state`."),
                        "key": OBJECT,
                        "value": OBJECT,
                    }
                )
            ),
            "more": described(FLAG, "More rows match."),
        }
    ),
    "ValidatedQuery": object_of(
        {
            "statements": list_of(
                object_of(
                    {
                        "target": described(TEXT, "The stream that it feeds."),
                        "line": INTEGER,
                        "columns": described(TEXTS, "Arrow types."),
                        "sources": list_of(TEXT, "Streams that it follows."),
                        "tables": list_of(TEXT, "Streams that it reads as tables."),
                        "sides": list_of(TEXT),
                        "feedback": list_of(TEXT, "Streams that it feeds back to."),
                        "late": described(TEXT_OR_NULL, "The stream of its late events."),
                    },
                    required=(),
                )
            ),
            "parameters": list_of(
                object_of({"name": TEXT, "type": TEXT, "default": TEXT_OR_NULL, "line": INTEGER}, required=())
            ),
        }
    ),
    "StopQuery": object_of(
        {"now": described(FLAG, "Without finishing the micro-batch. Default: false.")}, required=(), closed=True
    ),
    "Rollback": object_of(
        {"version": {"type": ["integer", "null"], "description": "Default: the one before."}, **_STARTING_OVER},
        required=(),
        closed=True,
    ),
}
