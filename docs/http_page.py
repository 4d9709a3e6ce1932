"""Makes docs/reference/http.md from the table of endpoints. The site's hook calls `page` at each build."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.table import ENDPOINTS

_HEAD: Final = """# HTTP

Every path that a broker serves on its HTTP port, by default 7411. [Use a store from curl](../how-to/curl.md) shows requests and
answers. `/v1/openapi.json` describes the same for generated clients, with the schemas of bodies and answers, and `/docs` is that
description as a page.

- A token is sent as `Authorization: Bearer TOKEN`. [Access](access.md) lists the rights.
- An error is `application/problem+json`: `status`, `code` (stable, for programs), `detail`, and the error's `fields`.
- An unknown parameter of a path below `/v1/` is refused.
- A verb after a colon, such as `POST /v1/streams/iot/sensors:seal`, is the [verb](rpc.md#verbs) `streams.seal` of that stream. Its
  other arguments are the JSON object in the body.
"""
_GROUPS: Final = (
    (
        "/v1/streams/{scope}/{name}/bytes",
        "Files: byte streams",
        "[Upload and download a file](../how-to/curl.md#upload-and-download-a-file).",
    ),
    ("/v1/streams", "Streams and events", ""),
    ("/v1/scopes", "Scopes", ""),
    ("/v1/queries", "Deployed queries", "[Deploy queries](../how-to/deploy-queries.md)."),
    ("/v1/templates", "Templates of queries", "[Templates](../how-to/deploy-queries.md#templates)."),
    ("/streams/", "Durable Streams", "[Durable Streams](../how-to/durable-streams.md)."),
    ("/prometheus/", "Prometheus", "[PromQL](promql.md)."),
    ("/ping", "InfluxDB", "[InfluxQL](influxql.md)."),
    ("/query", "InfluxDB", ""),
    ("/write", "InfluxDB", ""),
    ("/", "Queries, verbs and pages", ""),
)
_ORDER: Final = (
    *("Streams and events", "Scopes", "Queries, verbs and pages", "Files: byte streams", "Deployed queries"),
    *("Templates of queries", "Durable Streams", "InfluxDB", "Prometheus"),
)
_HEALTH: Final = """## Health and metrics

| Request | What it does |
|---|---|
| `GET /healthz` | 200 while the process answers |
| `GET /readyz` | 200 while the broker serves, else 503 |
| `GET /metrics` | metrics for Prometheus |

[Watch a broker](../how-to/run-a-broker.md#watch-it) says more.
"""


def page() -> str:
    """The whole page."""
    groups: dict[str, list[str]] = {title: [] for title in _ORDER}
    notes: dict[str, str] = {}
    for endpoint in ENDPOINTS:
        _, title, note = next(group for group in _GROUPS if endpoint.path.startswith(group[0]))
        groups[title].append(_row(endpoint))
        notes.setdefault(title, note)
    parts = [_HEAD]
    for title, rows in groups.items():
        parts.append(f"## {title}\n\n" + (f"See {notes[title]}\n\n" if notes[title] else "") + _TABLE + "".join(rows))
    return "\n".join([*parts, _HEALTH])


_TABLE: Final = "| Request | What it does | Parameters |\n|---|---|---|\n"


def _row(endpoint: Endpoint) -> str:
    path = endpoint.path.replace(":path}", "}")
    parameters = "<br>".join(map(_parameter, endpoint.parameters))
    return f"| `{endpoint.method} {path}` | {endpoint.summary} | {parameters} |\n"


def _parameter(parameter: Mapping[str, Any]) -> str:
    text = parameter.get("description", "").rstrip(".")
    where = " (header)" if parameter["in"] == "header" else ""
    return f"`{parameter['name']}`{where}: {text}" if text else f"`{parameter['name']}`{where}"
