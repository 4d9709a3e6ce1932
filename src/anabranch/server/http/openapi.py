"""The OpenAPI 3.1 description of the HTTP API, made from the table of endpoints and the table of verbs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import Parameter, getdoc
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from anabranch import __version__, limits
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.problem import PROBLEM
from anabranch.wire.hints import hints_of
from anabranch.wire.verbs import VERBS, StoreVerb

_PARAMETER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_CALL: Final = "/v1/call/{verb}"
_UNSENT: Final = ("progress", "started")
_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"}

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
_SCHEMAS: Final[Mapping[str, Any]] = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "fields"],
        "properties": {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer"},
            "detail": _TEXT,
            "code": {"type": "string", "description": "Never changes for a kind of error: `stream_not_found`."},
            "fields": {"type": "object"},
        },
    },
    "Event": {
        "type": "object",
        "description": "The columns of the stream. Times are ISO 8601; bytes are text, or base64 under `NAME_base64`. "
        "An event of a raw stream has `payload`, `key` and `time`.",
    },
    "Events": {
        "oneOf": [
            {"$ref": "#/components/schemas/Event"},
            {"type": "array", "minItems": 1, "items": {"$ref": "#/components/schemas/Event"}},
        ]
    },
    "Appended": {
        "type": "object",
        "required": ["events", "ranges"],
        "properties": {
            "events": {"type": "integer"},
            "pointers": {"type": "array", "items": _TEXT},
            "ranges": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["segment", "start", "stop"],
                    "properties": {"segment": _TEXT, "start": {"type": "integer"}, "stop": {"type": "integer"}},
                },
            },
            "sampled": {
                "type": "object",
                "description": "What the stream's load policy kept, if not all events.",
                "required": ["of", "weight"],
                "properties": {
                    "of": {"type": "integer", "description": "How many events the request has."},
                    "weight": {"type": "number", "description": "How many events each kept one stands for."},
                    "rows": {"type": "array", "items": {"type": "integer"}, "description": "The kept ones, from 0."},
                },
            },
        },
    },
    "Page": {
        "type": "object",
        "required": ["events", "cut", "next"],
        "properties": {
            "events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}},
            "cut": {"type": "string", "description": "The position behind the page."},
            "next": {"type": ["string", "null"], "description": "The page that follows."},
        },
    },
    "Cut": {"type": "object", "required": ["cut"], "properties": {"cut": _TEXT}},
    "Scope": {
        "type": "object",
        "required": ["name", "tags", "created_at"],
        "properties": {"name": _TEXT, "tags": {"type": "object"}, "created_at": _TEXT},
    },
    "NewScope": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": _NAME,
            "tags": {"type": "object", "additionalProperties": _TEXT},
            "exist_ok": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
    "Stream": {
        "type": "object",
        "required": ["name", "id", "columns", "key", "time", "raw", "tags", "created_at", "sealed", "epoch"],
        "properties": {
            "name": _TEXT,
            "id": _TEXT,
            "columns": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "type"],
                    "properties": {"name": _TEXT, "type": _TEXT},
                },
            },
            "key": {"type": ["string", "null"]},
            "time": {"type": ["string", "null"]},
            "raw": {"type": "boolean"},
            "tags": {"type": "object"},
            "created_at": _TEXT,
            "sealed": {"type": "boolean"},
            "epoch": {"type": "integer"},
        },
    },
    "NewStream": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "examples": ["iot/sensors"]},
            "schema": {"type": "string", "examples": ["sensor:string, at:timestamp, value:double"]},
            "key": _TEXT,
            "time": _TEXT,
            "scaling": {"description": "A number of segments, or a policy."},
            "tags": {"type": "object", "additionalProperties": _TEXT},
            "retention": {},
            "exist_ok": {"type": "boolean"},
        },
        "additionalProperties": False,
    },
    "Scopes": {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/components/schemas/Scope"}},
            "next": {"type": ["string", "null"]},
        },
    },
    "Streams": {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/components/schemas/Stream"}},
            "next": {"type": ["string", "null"]},
        },
    },
    "Queries": {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/components/schemas/Query"}},
            "next": {"type": ["string", "null"]},
        },
    },
    "Query": {
        "type": "object",
        "required": ["name", "state", "wanted", "version", "results", "progress", "error", "host"],
        "properties": {
            "name": _TEXT,
            "state": {
                "type": "string",
                "enum": ["waiting", "starting", "running", "stopping", "stopped", "failed"],
            },
            "wanted": {"type": "string", "enum": ["running", "stopped", "deleted"]},
            "version": {"type": "integer"},
            "created_at": _TEXT,
            "changed_at": _TEXT,
            "host": {"type": ["string", "null"]},
            "restarts": {"type": "integer", "description": "Runs that failed in a row."},
            "retry_at": {"type": ["string", "null"]},
            "error": {"type": ["string", "null"]},
            "results": {"type": "array", "items": _TEXT},
            "group": {"type": "string", "description": "Queries of different groups never share a driver."},
            "cpus": {"type": "number", "description": "Processors that a host sets aside for it."},
            "memory": {"type": "integer", "description": "Bytes that a host sets aside for it."},
            "refused": {"type": ["string", "null"], "description": "While it waits: why a host has no room for it."},
            "standby": {"type": "string", "enum": ["warm", "hot"]},
            "standby_state": {
                "type": ["string", "null"],
                "description": "Of a hot standby: none, behind, ready or refused.",
            },
            "standby_host": {"type": ["string", "null"]},
            "replaces": {"type": ["string", "null"], "description": "Of a replay: the query whose place it takes."},
            "progress": {"type": "array", "items": {"$ref": "#/components/schemas/StatementProgress"}},
        },
    },
    "StatementProgress": {
        "type": "object",
        "required": ["target"],
        "description": "Counts of events; times are ISO 8601.",
        "properties": {
            "target": {"type": "string", "description": "The stream of its results."},
            "state": _TEXT,
            "batch": {"type": "integer", "description": "The number of the last micro-batch, or -1."},
            "watermark": {"type": ["string", "null"], "description": "Windows that end before it are closed."},
            "read": {"type": "integer"},
            "rows_per_s": {"type": "number", "description": "Read, over the last seconds."},
            "lag": {"type": "integer", "description": "Still to be read."},
            "lag_s": {"type": "number", "description": "How old the oldest of them is, at most since the run's start."},
            "written": {"type": "integer"},
            "late": {"type": "integer", "description": "Kept in the stream of late events."},
            "run_late": {"type": "integer", "description": "Late in this run, or dropped as late."},
            "run_shed": {"type": "integer", "description": "Left out in this run to shed load."},
            "state_rows": {"type": "integer"},
            "state_bytes": {"type": "integer"},
            "batch_ms": {"type": "integer", "description": "How long the last micro-batch took."},
            "batch_rows": {"type": "integer", "description": "The events that it read."},
            "stages_ms": {
                "type": "object",
                "additionalProperties": {"type": "integer"},
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
                        "bytes": {"type": "integer"},
                        "updated": {
                            "type": "integer",
                            "description": "Rows of state that the last micro-batch changed.",
                        },
                        "commit_ms": {"type": "integer"},
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
            "state": _TEXT,
            "statements": {"type": "array", "items": {"$ref": "#/components/schemas/StatementProgress"}},
        },
    },
    "QueryVersions": {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/components/schemas/QueryVersion"}},
            "next": {"type": ["string", "null"]},
        },
    },
    "QueryVersion": {
        "type": "object",
        "required": ["number", "digest", "created_at", "parameters", "trigger_us", "sql", "files", "signature"],
        "properties": {
            "number": {"type": "integer"},
            "digest": {"type": "string", "description": "The SHA-256 of all that makes it."},
            "created_at": _TEXT,
            "parameters": {"type": "object", "additionalProperties": _TEXT},
            "trigger_us": {"type": "integer"},
            "sql": _TEXT,
            "files": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "kind", "digest", "size"],
                    "properties": {
                        "name": _TEXT,
                        "kind": {**_TEXT, "enum": ["wheel", "wasm", "resource"]},
                        "digest": {"type": "string", "description": "The SHA-256 of its content."},
                        "size": {"type": "integer", "description": "In bytes."},
                    },
                },
            },
            "signature": {"type": ["string", "null"]},
        },
    },
    "QueryTemplates": {
        "type": "object",
        "required": ["items", "next"],
        "properties": {
            "items": {"type": "array", "items": {"$ref": "#/components/schemas/QueryTemplate"}},
            "next": {"type": ["string", "null"]},
        },
    },
    "QueryTemplate": {
        "type": "object",
        "required": ["name", "description", "parameters", "sql", "saved_at"],
        "properties": {
            "name": _TEXT,
            "description": _TEXT,
            "parameters": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name", "type", "default", "meaning"],
                    "properties": {
                        "name": _TEXT,
                        "type": _TEXT,
                        "default": {"type": ["string", "null"], "description": "Without one it needs a value."},
                        "meaning": _TEXT,
                    },
                },
            },
            "sql": _TEXT,
            "saved_at": {"type": ["string", "null"], "description": "null: it comes with the package."},
        },
    },
    "NewQuery": {
        "type": "object",
        "description": "With `sql`, or with `template`.",
        "properties": {
            "sql": {"type": "string", "description": "CREATE STREAM statements."},
            "template": {"type": "string", "description": "The name of a template, whose statements it has."},
            "parameters": {"type": "object", "additionalProperties": _TEXT},
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
            "sql": _TEXT,
            "parameters": {"type": "object", "additionalProperties": _TEXT},
            "files": _FILES["files"],
        },
        "additionalProperties": False,
    },
    "QueryUpgrade": {
        "type": "object",
        "required": ["sql"],
        "properties": {
            "sql": _TEXT,
            "parameters": {"type": "object", "additionalProperties": _TEXT, "description": "Default: as they are."},
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
            "statements": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["target", "line", "verdict", "reason"],
                    "properties": {
                        "target": _TEXT,
                        "line": {"type": "integer"},
                        "verdict": {**_TEXT, "enum": ["keeps state", "restarts", "refused", "new", "removed"]},
                        "reason": _TEXT,
                    },
                },
            },
        },
    },
    "CommittedState": {
        "type": "object",
        "required": ["target", "batch", "rows", "more"],
        "properties": {
            "target": {**_TEXT, "description": "The stream that the statement feeds."},
            "batch": {"type": "integer", "description": "After this micro-batch."},
            "rows": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["operator", "part", "key", "value"],
                    "properties": {
                        "operator": {**_TEXT, "description": "Spark's name of it."},
                        "part": {
                            **_TEXT,
                            "description": "A side of a join, a variable of a stateful function, or `state`.",
                        },
                        "key": {"type": "object"},
                        "value": {"type": "object"},
                    },
                },
            },
            "more": {"type": "boolean", "description": "There are others that match."},
        },
    },
    "ValidatedQuery": {
        "type": "object",
        "required": ["statements", "parameters"],
        "properties": {
            "statements": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "target": {**_TEXT, "description": "The stream that it feeds."},
                        "line": {"type": "integer"},
                        "columns": {
                            "type": "object",
                            "additionalProperties": _TEXT,
                            "description": "Arrow types.",
                        },
                        "sources": {"type": "array", "items": _TEXT, "description": "Streams that it follows."},
                        "tables": {
                            "type": "array",
                            "items": _TEXT,
                            "description": "Streams that it reads as they are.",
                        },
                        "sides": {"type": "array", "items": _TEXT},
                        "feedback": {"type": "array", "items": _TEXT, "description": "Streams that it feeds back to."},
                        "late": {"type": ["string", "null"], "description": "The stream of its late events."},
                    },
                },
            },
            "parameters": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": _TEXT,
                        "type": _TEXT,
                        "default": {"type": ["string", "null"]},
                        "line": {"type": "integer"},
                    },
                },
            },
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
    "Arguments": {"type": "object", "description": "The arguments of the verb, by name."},
    "Result": {
        "type": "object",
        "required": ["result"],
        "properties": {"result": {}, "warnings": {"type": "array", "items": {"type": "object"}}},
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
                        "call": {"type": "string", "description": "A verb.", "examples": ["cuts.tail"]},
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
                "description": "The steps take place together, or, where one fails, not at all.",
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


def openapi(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The description. Each verb stands in it as a path of its own."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        if endpoint.path != _CALL:
            path = _PARAMETER.sub(r"{\1}", endpoint.path)
            paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
            continue
        for verb in VERBS.values():
            paths[_CALL.replace("{verb}", verb.name)] = {"post": _call_operation(endpoint, verb)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Anabranch",
            "version": __version__,
            "summary": "A stream store",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _SCHEMAS,
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    """One operation. Whatever fails is answered with a problem, unless the endpoint says otherwise."""
    names = _PARAMETER.findall(endpoint.path)
    in_path = [{"name": name, "in": "path", "required": True, "schema": _NAME} for name in names]
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[2] if endpoint.path.startswith("/v1/") else "docs"],
        "parameters": [*in_path, *endpoint.parameters],
        "responses": {
            "default": {
                "description": "A problem.",
                "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
            **(endpoint.answers or {"200": {"description": "The page."}}),
        },
    }
    if endpoint.body is not None:
        found["requestBody"] = endpoint.body
    if endpoint.resource == "open":
        found["security"] = []
    return found


def _call_operation(endpoint: Endpoint, verb: StoreVerb) -> dict[str, Any]:
    doc = (getdoc(verb.function) or "").split("\n\n")[0].replace("\n", " ")
    found = _operation(endpoint)
    found |= {
        "operationId": verb.name,
        "summary": f"{verb.name}",
        "description": doc,
        "tags": [verb.name.rpartition(".")[0] or "store"],
        "parameters": list(endpoint.parameters) if "request" in verb.parameters else [],
        "requestBody": {"content": {"application/json": {"schema": _arguments(verb)}}},
    }
    if verb.streaming:
        found["responses"]["200"] = {
            "description": "The items, one a line.",
            "content": {"application/x-ndjson": {"schema": _TEXT}},
        }
    return found


def _arguments(verb: StoreVerb) -> dict[str, Any]:
    """The schema of a verb's arguments. What is no plain JSON is described in the wire's own form (`$type`)."""
    hints = hints_of(verb.function)
    names = {name: parameter for name, parameter in verb.parameters.items() if name not in _UNSENT}
    required = [name for name, parameter in names.items() if parameter.default is Parameter.empty]
    found: dict[str, Any] = {
        "type": "object",
        "properties": {name: _schema(hints.get(name)) for name in names},
        "additionalProperties": False,
    }
    return {**found, "required": required} if required else found


def _schema(hint: Any) -> dict[str, Any]:
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if get_origin(hint) in (Union, UnionType):
        kinds = {_TYPES.get(each, "null" if each is type(None) else "") for each in get_args(hint)}
        if "" not in kinds:
            return {"type": sorted(kinds)}
    return {}
