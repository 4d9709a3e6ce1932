"""The endpoints of InfluxDB's API, with the credentials and errors of its clients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.responses import Response
from starlette.types import Scope

from anabranch.server.http.access import password_token
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.query import influx_query
from anabranch.server.http.influx.write import influx_write
from anabranch.server.http.openapi_parts import FLAG, TEXT, one_of, query_parameter
from anabranch.server.http.problem import problem_of, problem_response, with_body

VERSION: Final = "1.6.7"
"""The release of InfluxDB whose language and API this front end implements."""


async def influx_ping(call: HttpCall) -> Response:
    """InfluxDB's health check. The headers name the version."""
    del call
    return Response(status_code=204)


def influx_token(scope: Scope) -> str | None:
    """The token of the header `Authorization`, or of the parameter `p`: the password of any user. Raises Unauthenticated."""
    token = password_token(scope)
    if token is not None:
        return token or None
    password = parse_qs(scope["query_string"].decode("latin-1")).get("p")
    return password[0] if password else None


def influx_refusal(error: BaseException) -> Response:
    """The answer to a request that failed, as the clients of InfluxDB expect it: `{"error": …}`."""
    message = problem_of(error)["detail"]
    response = with_body(problem_response(error), {"error": message})
    response.headers["X-Influxdb-Error"] = re.sub(r"[^ -~]", "?", message.replace("\n", " "))[:200]  # what it may hold
    return response


_UNIT: Final = one_of("ns", "u", "ms", "s", "m", "h")
_DATABASE: Final = query_parameter("db", TEXT, "The scope.")
_QUERY: Final = (
    query_parameter("q", TEXT, "Statements of InfluxQL, separated by `;`. By POST also in a form."),
    _DATABASE,
    query_parameter("epoch", _UNIT, "Times as numbers of this unit."),
    query_parameter("params", TEXT, "A JSON object with the values of `$name`."),
    query_parameter("chunked", FLAG, "Answer in pieces, one a line."),
    query_parameter("chunk_size", {"type": "integer", "minimum": 1}, "Rows of a piece."),
    query_parameter("pretty", FLAG, "Indent the answer."),
)
_WRITE: Final = (
    _DATABASE,
    query_parameter("precision", _UNIT, "The unit of the times. Default: `ns`."),
)
_RESULTS: Final[Mapping[str, Any]] = {
    "200": {"description": "The results.", "content": {"application/json": {"schema": {"type": "object"}}}}
}
_ERROR: Final[Mapping[str, Any]] = {
    "default": {
        "description": "The error, in InfluxDB's format.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["error"]}}},
    }
}
_endpoint = partial(
    Endpoint,
    headers={"X-Influxdb-Version": VERSION, "X-Influxdb-Build": "OSS"},
    token_of=influx_token,
    refusal=influx_refusal,
)

INFLUX: Final[tuple[Endpoint, ...]] = (
    *(
        _endpoint(
            *(method, "/ping", influx_ping, {"204": {"description": "It is."}, **_ERROR}),
            name=f"influx_ping_{method.lower()}",
            public=True,
        )
        for method in ("GET", "HEAD")
    ),
    *(
        _endpoint(
            *(method, "/query", influx_query, {**_RESULTS, **_ERROR}),
            name=f"influx_query_{method.lower()}",
            parameters=_QUERY,
        )
        for method in ("GET", "POST")
    ),
    _endpoint(
        *("POST", "/write", influx_write, {"204": {"description": "All events are durable."}, **_ERROR}),
        parameters=_WRITE,
        body={"required": True, "content": {"text/plain": {"schema": TEXT}}},
    ),
)
