"""`/query` and `/query_range`: the value of a query at one time, and at several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from starlette.responses import Response

from anabranch import limits
from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.query.messages import over_time
from anabranch.query.promql.evaluate import Evaluation
from anabranch.query.promql.parser import parse_promql
from anabranch.query.promql.samples import Samples
from anabranch.query.promql.syntax import PromNode
from anabranch.query.sandbox import QueryLimits
from anabranch.server.http.front import HttpCall
from anabranch.server.http.measurements import ScopeStreams
from anabranch.server.http.prometheus.encode import grid, instant_result, range_result, success
from anabranch.server.http.prometheus.parameters import GivenParameters, given_parameters


async def prometheus_query(call: HttpCall) -> Response:
    """Query by PromQL at one time. `time` is now if it isn't given."""
    given = await given_parameters(call)
    at = given.time("time", now_ms(call))
    check = _deadline(call, given)
    node = await call.front.run_query(lambda: _parsed(given))

    def answer() -> dict[str, Any]:
        evaluation = Evaluation(Samples(ScopeStreams(call)), np.array([at], np.int64), at, at, check)
        return instant_result(evaluation.value(node), at)

    return success(await call.front.run_query(answer))


async def prometheus_query_range(call: HttpCall) -> Response:
    """Query by PromQL at several times. They are from `start` to `end`, `step` apart."""
    given = await given_parameters(call)
    start, end, step = given.time("start"), given.time("end"), given.duration("step")
    if end < start:
        raise InvalidArgument('invalid parameter "end": end timestamp must not be before start time')
    if step <= 0:
        raise InvalidArgument(
            'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
            "Try a positive integer"
        )
    if (end - start) // step > limits.PROMQL_POINTS_MAX:
        raise InvalidArgument(
            f"exceeded maximum resolution of {limits.PROMQL_POINTS_MAX:,} points per timeseries. Try decreasing the "
            "query resolution (?step=XX)"
        )
    check = _deadline(call, given)
    node = await call.front.run_query(lambda: _parsed(given))

    def answer() -> dict[str, Any]:
        times = grid(start, end, step)
        value = Evaluation(Samples(ScopeStreams(call)), times, start, end, check).value(node)
        if isinstance(value, str | list):
            kind = "string" if isinstance(value, str) else "range vector"
            raise InvalidArgument(
                f'invalid parameter "query": invalid expression type "{kind}" for range query, must be Scalar or '
                "instant Vector"
            )
        return range_result(value, times)

    return success(await call.front.run_query(answer))


def now_ms(call: HttpCall) -> int:
    """The time by the store's clock."""
    return int(call.front.store.runtime.clock.now()) // 1000


def _parsed(given: GivenParameters) -> PromNode:
    try:
        return parse_promql(given.text("query"))
    except InvalidSql as exc:
        raise InvalidArgument(f'invalid parameter "query": parse error: {exc}') from exc


def _deadline(call: HttpCall, given: GivenParameters) -> Callable[[], None]:
    """Raises QueryLimitExceeded after `timeout`, or the time that a query of a broker may take."""
    seconds = call.front.queries.isolated.limits.seconds or limits.QUERY_S_MAX
    if given.text("timeout"):
        seconds = min(seconds, max(given.duration("timeout"), 1) / 1000)
    clock = call.front.store.runtime.clock
    deadline = clock.monotonic() + seconds

    def check() -> None:
        if clock.monotonic() > deadline:
            raise over_time(QueryLimits(seconds=seconds))

    return check
