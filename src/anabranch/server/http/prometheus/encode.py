"""Values and errors as the JSON of Prometheus."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from starlette.responses import Response

from anabranch import limits
from anabranch.errors import InvalidArgument, InvalidSql, NotFound, QueryLimitExceeded
from anabranch.query.promql.evaluate import PromValue
from anabranch.query.promql.vectors import Floats, Integers, SeriesVector, key_of, number_text
from anabranch.server.http.problem import problem_of, problem_response, with_body


def success(data: object) -> Response:
    """The answer to a request that succeeded."""
    return Response(msgspec.json.encode({"status": "success", "data": data}), media_type="application/json")


def prometheus_refusal(error: BaseException) -> Response:
    """The answer to a request that failed, as `{"status": "error", "errorType": …, "error": …}`. What a query can't compute is 422, what can't be parsed is 400."""
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


def instant_result(value: PromValue, at: int) -> dict[str, Any]:
    """The value at one time."""
    match value:
        case str():
            return _result("string", [_seconds(at), value])
        case SeriesVector():
            _check_points(len(value.labels))
            points = zip(value.labels, _texts(value.values[:, 0]), strict=True)
            return _result("vector", [{"metric": labels, "value": [_seconds(at), text]} for labels, text in points])
        case list():
            _check_points(sum(len(series.at) for series in value))
            return _result(
                "matrix",
                [{"metric": each.labels, "values": _pairs(each.at, each.values)} for each in value if len(each.at)],
            )
    return _result("scalar", [_seconds(at), _texts(value)[0]])


def range_result(value: SeriesVector | Floats, times: Integers) -> dict[str, Any]:
    """The values at several times."""
    if not isinstance(value, SeriesVector):
        return _result("matrix", [{"metric": {}, "values": _pairs(times, value)}])
    _check_points(int(value.present.sum()))
    rows = zip(value.labels, value.values, value.present, strict=True)
    ordered = sorted(rows, key=lambda row: key_of(row[0]))
    return _result(
        "matrix",
        [{"metric": labels, "values": _pairs(times[at], values[at])} for labels, values, at in ordered],
    )


def _pairs(times: Integers, values: Floats) -> list[tuple[float, str]]:
    seconds = map(_seconds, times.tolist())
    return list(zip(seconds, _texts(values), strict=True))


def _seconds(ms: int) -> float:
    return ms // 1000 if ms % 1000 == 0 else ms / 1000


def _result(kind: str, found: object) -> dict[str, Any]:
    return {"resultType": kind, "result": found}


def _texts(values: Floats) -> list[str]:
    return list(map(number_text, values.tolist()))


def _check_points(count: int) -> None:
    if count > limits.PROMQL_RESULT_POINTS_MAX:
        most = limits.PROMQL_RESULT_POINTS_MAX
        raise QueryLimitExceeded(f"the result has {count:,} points, more than {most:,}; take a longer step", "memory")


def grid(start: int, end: int, step: int) -> Integers:
    """The times of a range query, `end` included."""
    return np.arange(start, end + 1, step, dtype=np.int64)
