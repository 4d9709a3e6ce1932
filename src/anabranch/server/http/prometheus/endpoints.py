"""The endpoints of Prometheus's API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from anabranch.server.http.access import password_token
from anabranch.server.http.endpoints import Endpoint, Handler
from anabranch.server.http.openapi_parts import TEXT, query_parameter
from anabranch.server.http.prometheus.encode import prometheus_refusal
from anabranch.server.http.prometheus.query import prometheus_query, prometheus_query_range
from anabranch.server.http.prometheus.series import (
    prometheus_build,
    prometheus_label_values,
    prometheus_labels,
    prometheus_metadata,
    prometheus_series,
)

_BELOW: Final = "/prometheus/{scope}/api/v1"


def _query(name: str, description: str) -> Mapping[str, Any]:
    return query_parameter(name, TEXT, description)


_PROMQL: Final = _query("query", "A query in PromQL. By POST also in a form, as all parameters.")
_TIMEOUT: Final = _query("timeout", "The time that the query may take, in seconds or such as `30s`.")
_START: Final = _query("start", "A time: seconds since 1970, or RFC 3339.")
_END: Final = _query("end", "A time, inclusive.")
_SELECTED: Final = (
    _query("match[]", 'A selector of series such as `cpu{host="a"}`; it may be given several times.'),
    _START,
    _END,
)
_ANSWERS: Final = {
    "200": {"description": "The result.", "content": {"application/json": {"schema": {"type": "object"}}}},
    "default": {
        "description": "The error, in Prometheus's format.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["status", "errorType", "error"]}}},
    },
}


def _endpoints(
    path: str, handler: Handler, *parameters: Mapping[str, Any], methods: Sequence[str] = ("GET", "POST")
) -> Iterator[Endpoint]:
    for method in methods:
        yield Endpoint(
            *(method, f"{_BELOW}{path}", handler, _ANSWERS),
            name=f"{handler.__name__}_{method.lower()}",
            parameters=parameters,
            token_of=password_token,
            refusal=prometheus_refusal,
        )


_GET: Final = ("GET",)
PROMETHEUS: Final[tuple[Endpoint, ...]] = (
    *_endpoints("/query", prometheus_query, _PROMQL, _query("time", "A time."), _TIMEOUT),
    *_endpoints(
        "/query_range",
        prometheus_query_range,
        *(_PROMQL, _START, _END, _query("step", "The time between two points, in seconds or such as `1m`."), _TIMEOUT),
    ),
    *_endpoints("/series", prometheus_series, *_SELECTED),
    *_endpoints("/labels", prometheus_labels, *_SELECTED),
    *_endpoints("/label/{label}/values", prometheus_label_values, *_SELECTED, methods=_GET),
    *_endpoints(
        "/metadata",
        prometheus_metadata,
        *(_query("metric", "Only this metric."), _query("limit", "At most this many metrics.")),
        methods=_GET,
    ),
    *_endpoints("/status/buildinfo", prometheus_build, methods=_GET),
)
