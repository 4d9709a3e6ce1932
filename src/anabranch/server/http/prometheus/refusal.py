"""Errors as the clients of Prometheus expect them: `{"status": "error", "errorType": …, "error": …}`."""

from __future__ import annotations

from starlette.responses import Response

from anabranch.errors import InvalidArgument, InvalidSql, NotFound, QueryLimitExceeded
from anabranch.server.http.problem import problem_of, problem_response, with_body


def prometheus_refusal(error: BaseException) -> Response:
    """The answer to a request that failed. What a query can't compute is 422, what can't be parsed is 400."""
    response = problem_response(error)
    status, kind = response.status_code, "internal"
    match error:
        case InvalidSql():
            status, kind = 422, "execution"
        case InvalidArgument():
            status, kind = 400, "bad_data"
        case QueryLimitExceeded():
            status, kind = (503, "timeout") if error.limit == "time" else (422, "execution")
        case NotFound():
            kind = "not_found"
        case _ if status == 503:
            kind = "unavailable"
        case _ if 400 <= status < 500:
            kind = "bad_data"
    answer = {"status": "error", "errorType": kind, "error": problem_of(error)["detail"]}
    return with_body(response, answer, status)
