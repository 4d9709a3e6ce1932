"""The endpoints of InfluxDB's API."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.front import HttpCall
from anabranch.server.http.influx.credentials import influx_token
from anabranch.server.http.influx.query import influx_query
from anabranch.server.http.influx.refusal import influx_refusal
from anabranch.server.http.influx.write import influx_write

VERSION: Final = "1.6.7"
"""The release of InfluxDB whose language and API these are."""
_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}


async def influx_ping(call: HttpCall) -> Response:
    """Say that the broker is there, and what it speaks."""
    del call
    return Response(status_code=204)


def _query(name: str, kind: Mapping[str, Any], description: str) -> Mapping[str, Any]:
    return {"name": name, "in": "query", "schema": kind, "description": description}


_DATABASE: Final = _query("db", _TEXT, "The scope.")
_QUERY: Final = (
    _query("q", _TEXT, "Statements of InfluxQL, separated by `;`. By POST also in a form."),
    _DATABASE,
    _query("epoch", {**_TEXT, "enum": ["ns", "u", "ms", "s", "m", "h"]}, "Times as numbers of this unit."),
    _query("params", _TEXT, "A JSON object with the values of `$name`."),
    _query("chunked", _FLAG, "Answer in pieces, one a line."),
    _query("chunk_size", {"type": "integer", "minimum": 1}, "Rows of a piece."),
    _query("pretty", _FLAG, "Indent the answer."),
)
_WRITE: Final = (
    _DATABASE,
    _query("precision", {**_TEXT, "enum": ["ns", "u", "ms", "s", "m", "h"]}, "The unit of the times. Default: `ns`."),
)
_RESULTS: Final = {
    "200": {"description": "The results.", "content": {"application/json": {"schema": {"type": "object"}}}}
}
_ERROR: Final = {
    "default": {
        "description": "The error, as InfluxDB says it.",
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
            summary="InfluxDB's check that a server is there",
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
        body={"required": True, "content": {"text/plain": {"schema": _TEXT}}},
        answers={"204": {"description": "All events are durable."}, **_ERROR},
    ),
)
