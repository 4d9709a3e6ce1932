"""The endpoints of InfluxDB's API."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.responses import Response

from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.credentials import influx_token
from anabranch.server.http.influx.query import influx_query
from anabranch.server.http.influx.refusal import influx_refusal
from anabranch.server.http.influx.write import influx_write
from anabranch.server.http.openapi_parts import FLAG, TEXT, query_parameter

VERSION: Final = "1.6.7"
"""The release of InfluxDB whose language and API this front end implements."""


async def influx_ping(call: HttpCall) -> Response:
    """Answer InfluxDB's health check. The headers name the version."""
    del call
    return Response(status_code=204)


_DATABASE: Final = query_parameter("db", TEXT, "The scope.")
_QUERY: Final = (
    query_parameter("q", TEXT, "Statements of InfluxQL, separated by `;`. By POST also in a form."),
    _DATABASE,
    query_parameter("epoch", {**TEXT, "enum": ["ns", "u", "ms", "s", "m", "h"]}, "Times as numbers of this unit."),
    query_parameter("params", TEXT, "A JSON object with the values of `$name`."),
    query_parameter("chunked", FLAG, "Answer in pieces, one a line."),
    query_parameter("chunk_size", {"type": "integer", "minimum": 1}, "Rows of a piece."),
    query_parameter("pretty", FLAG, "Indent the answer."),
)
_WRITE: Final = (
    _DATABASE,
    query_parameter(
        "precision", {**TEXT, "enum": ["ns", "u", "ms", "s", "m", "h"]}, "The unit of the times. Default: `ns`."
    ),
)
_RESULTS: Final = {
    "200": {"description": "The results.", "content": {"application/json": {"schema": {"type": "object"}}}}
}
_ERROR: Final = {
    "default": {
        "description": "The error, in InfluxDB's format.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["error"]}}},
    }
}
_endpoint = partial(
    Endpoint,
    operation=None,
    headers={"X-Influxdb-Version": VERSION, "X-Influxdb-Build": "OSS"},
    token_of=influx_token,
    refusal=influx_refusal,
)

INFLUX: Final[tuple[Endpoint, ...]] = (
    *(
        _endpoint(
            method=method,
            path="/ping",
            handler=influx_ping,
            resource="open",
            name=f"influx_ping_{method.lower()}",
            summary="InfluxDB's health check",
            answers={"204": {"description": "It is."}, **_ERROR},
        )
        for method in ("GET", "HEAD")
    ),
    *(
        _endpoint(
            method=method,
            path="/query",
            handler=influx_query,
            resource="verb",
            name=f"influx_query_{method.lower()}",
            summary="Query by InfluxQL",
            parameters=_QUERY,
            answers={**_RESULTS, **_ERROR},
        )
        for method in ("GET", "POST")
    ),
    _endpoint(
        method="POST",
        path="/write",
        handler=influx_write,
        resource="verb",
        name="influx_write",
        summary="Append events by InfluxDB's line protocol",
        parameters=_WRITE,
        body={"required": True, "content": {"text/plain": {"schema": TEXT}}},
        answers={"204": {"description": "All events are durable."}, **_ERROR},
    ),
)
