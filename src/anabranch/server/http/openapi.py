"""The OpenAPI 3.1 description of the HTTP API, made from the table of endpoints and the table of verbs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from inspect import Parameter, getdoc
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from anabranch import __version__
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.openapi_parts import NAME, TEXT, reference
from anabranch.server.http.problem import PROBLEM
from anabranch.server.http.queries.schemas import QUERY_SCHEMAS
from anabranch.server.http.schemas import SCHEMAS
from anabranch.wire.verbs import VERBS, StoreVerb

_PARAMETER: Final = re.compile(r"{(\w+)(?::\w+)?}")
_CALL: Final = "/v1/call/{verb}"
_UNSENT: Final = ("progress", "started")
_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}


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
            "schemas": {**SCHEMAS, **QUERY_SCHEMAS},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    """One operation. Whatever fails is answered with a problem, unless the endpoint says otherwise."""
    names = _PARAMETER.findall(endpoint.path)
    in_path = [{"name": name, "in": "path", "required": True, "schema": NAME} for name in names]
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.path.split("/")[2] if endpoint.path.startswith("/v1/") else "docs"],
        "parameters": [*in_path, *endpoint.parameters],
        "responses": {
            "default": {
                "description": "A problem.",
                "content": {PROBLEM: {"schema": reference("Problem")}},
            },
            **(endpoint.answers or {"200": {"description": "The page."}}),
        },
    }
    if endpoint.body is not None:
        found["requestBody"] = endpoint.body
    if endpoint.public:
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
            "content": {"application/x-ndjson": {"schema": TEXT}},
        }
    return found


def _arguments(verb: StoreVerb) -> dict[str, Any]:
    """The schema of a verb's arguments. What is no plain JSON is described in the wire's own form (`$type`)."""
    hints = verb.hints
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
