"""Errors as the clients of InfluxDB expect them: `{"error": …}`."""

from __future__ import annotations

import re

import msgspec
from starlette.responses import Response

from anabranch.server.http.problem import problem_of, problem_response


def influx_refusal(error: BaseException) -> Response:
    """The answer to a request that failed: as everywhere, but for the body."""
    response = problem_response(error)
    message = problem_of(error)["detail"]
    body = msgspec.json.encode({"error": message})
    headers = {
        name: value for name, value in response.headers.items() if name not in ("content-type", "content-length")
    }
    headers["X-Influxdb-Error"] = re.sub(r"[^ -~]", "?", message.replace("\n", " "))[:200]  # what a header may hold
    return Response(body, response.status_code, headers, "application/json")
