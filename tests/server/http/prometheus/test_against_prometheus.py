"""Queries in PromQL give what a real Prometheus gives for the same samples: series, times, values, and errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.query.engine import Query
from anabranch.query.promql.evaluate import Evaluation
from anabranch.query.promql.parser import parse_promql
from anabranch.query.promql.samples import Samples
from anabranch.server.http.prometheus.encode import grid, instant_result, range_result
from tests.server.http.influx.in_process import OpenStreams
from tests.server.http.prometheus.data import BEGIN_S
from tests.server.http.serving import Serving

STATEMENTS = [
    line
    for line in (Path(__file__).parent / "statements.promql").read_text().splitlines()
    if line and not line.startswith("#")
]
AT_MS = (BEGIN_S + 1_803) * 1000
RANGE_MS = (AT_MS - 300_000, AT_MS + 700_000, 47_000)
ORDERED = ("sort", "topk", "bottomk")


class ScopeOf:
    """The streams of the scope `db`, with one DuckDB for all queries."""

    def __init__(self, streams: OpenStreams) -> None:
        self._streams = streams
        self._measurements = streams.measurements("db")

    def measurements(self) -> Any:
        return self._measurements

    def run(self, sql: str, measurement: Any) -> Any:
        return self._streams.run(sql, measurement)


@pytest.fixture(scope="module")
def streams(broker: Serving) -> Any:
    with Query(broker.broker.store) as query:
        yield ScopeOf(OpenStreams(broker.broker.store, query))


def ours(streams: ScopeOf, text: str, *, ranged: bool) -> Any:
    """The value, or why the query is refused."""
    try:
        start, end, step = RANGE_MS if ranged else (AT_MS, AT_MS, 1)
        times = grid(start, end, step)
        value = Evaluation(Samples(streams), times, start, end, lambda: None).value(parse_promql(text))
        if not ranged:
            return instant_result(value, AT_MS)
        return "refused" if isinstance(value, str | list) else range_result(value, times)
    except (InvalidSql, InvalidArgument) as exc:
        return f"refused: {exc}"


def theirs(client: httpx.Client, url: str, text: str, *, ranged: bool) -> Any:
    if ranged:
        start, end, step = (each / 1000 for each in RANGE_MS)
        answer = client.get(
            f"{url}/api/v1/query_range", params={"query": text, "start": start, "end": end, "step": step}
        )
    else:
        answer = client.get(f"{url}/api/v1/query", params={"query": text, "time": AT_MS / 1000})
    return answer.json().get("data")


def same(expected: Any, found: Any, *, ordered: bool) -> bool:
    if expected is None or isinstance(found, str):
        return expected is None and isinstance(found, str)
    if expected["resultType"] != found["resultType"]:
        return False
    one, other = expected["result"], found["result"]
    if expected["resultType"] in ("scalar", "string"):
        return same_points([one], [other])
    if not ordered:
        one, other = (sorted(each, key=lambda series: sorted(series["metric"].items())) for each in (one, other))
    return len(one) == len(other) and all(
        left["metric"] == right["metric"] and same_points(points_of(left), points_of(right))
        for left, right in zip(one, other, strict=True)
    )


def points_of(series: Any) -> Any:
    return series["values"] if "values" in series else [series["value"]]


def same_points(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(
        left[0] == right[0] and same_number(left[1], right[1]) for left, right in zip(one, other, strict=True)
    )


def same_number(one: str, other: str) -> bool:
    try:
        left, right = float(one), float(other)
    except ValueError:
        return one == other
    if math.isnan(left) or math.isnan(right) or math.isinf(left) or math.isinf(right):
        return one == other
    return abs(left - right) <= 1e-9 * max(abs(left), abs(right))


def assert_same(client: httpx.Client, url: str, streams: ScopeOf, statements: Sequence[str]) -> None:
    different = []
    for statement in statements:
        for ranged in (False, True):
            expected = theirs(client, url, statement, ranged=ranged)
            found = ours(streams, statement, ranged=ranged)
            if not same(expected, found, ordered=not ranged and statement.startswith(ORDERED)):
                kind = "range" if ranged else "instant"
                different.append(f"{statement} ({kind})\n  expected {expected!s:.600}\n  found    {found!s:.600}")
    assert not different, f"{len(different)} differ:\n" + "\n".join(different)


def test_some_queries_give_what_prometheus_gives(client: httpx.Client, oracle: str, streams: ScopeOf) -> None:
    assert_same(client, oracle, streams, STATEMENTS[::30])


def test_predictions_begin_at_the_time_of_the_result(client: httpx.Client, oracle: str, streams: ScopeOf) -> None:
    assert_same(client, oracle, streams, [each for each in STATEMENTS if "predict_linear" in each])


@pytest.mark.slow
def test_all_queries_give_what_prometheus_gives(client: httpx.Client, oracle: str, streams: ScopeOf) -> None:
    assert len(STATEMENTS) > 300
    assert_same(client, oracle, streams, STATEMENTS)


def test_a_broker_gives_what_prometheus_gives(client: httpx.Client, broker: Serving, oracle: str) -> None:
    asked = {"query": 'cpu{host=~"a|b"}', "time": str(AT_MS / 1000)}
    expected, found = (
        client.post(f"{url}/api/v1/query", data=asked).json() for url in (oracle, f"{broker.url}/prometheus/db")
    )
    assert expected["data"]["result"]
    assert same(expected["data"], found["data"], ordered=False)


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/series", {"match[]": "cpu"}),
        ("/series", {"match[]": ["cpu{host='a'}", '{__name__=~"memory.*",region="eu"}']}),
        ("/series", {"match[]": "cpu", "start": BEGIN_S - 10_000_000, "end": BEGIN_S - 9_000_000}),
        ("/series", {}),
        ("/series", {"match[]": "sum(cpu)"}),
        ("/labels", {}),
        ("/labels", {"match[]": "cpu"}),
        ("/label/host/values", {}),
        ("/label/host/values", {"match[]": 'cpu{region="eu"}'}),
        ("/label/__name__/values", {}),
        ("/label/__name__/values", {"match[]": '{host="a"}'}),
        ("/label/none/values", {}),
        ("/query", {"query": "sum(", "time": "1"}),
        ("/query", {"query": "cpu + on () cpu", "time": BEGIN_S + 600}),
        ("/query", {"query": "1", "time": "x"}),
        ("/query", {"query": "1", "time": "2023-11-14T22:13:20.5Z"}),
        ("/query_range", {"query": "1", "start": 1, "end": 0, "step": 1}),
        ("/query_range", {"query": "1", "start": 0, "end": 1, "step": 0}),
        ("/query_range", {"query": "1", "start": 0, "end": 11_001, "step": 1}),
        ("/query_range", {"query": "1", "start": 0, "end": 120, "step": "1m"}),
        ("/query_range", {"query": "1", "start": 0, "end": 120, "step": "x"}),
        ("/query_range", {"query": "cpu[1m]", "start": 0, "end": 120, "step": "1m"}),
    ],
)
def test_answers_have_the_shapes_and_the_errors_of_prometheus(
    client: httpx.Client, broker: Serving, oracle: str, path: str, asked: dict[str, Any]
) -> None:
    one, other = (client.get(f"{url}/api/v1{path}", params=asked) for url in (oracle, f"{broker.url}/prometheus/db"))
    expected, found = one.json(), other.json()
    assert (one.status_code, expected["status"], expected.get("errorType")) == (
        other.status_code,
        found["status"],
        found.get("errorType"),
    )
    if isinstance(expected.get("data"), list):
        key = str if path != "/series" else (lambda labels: sorted(labels.items()))
        assert sorted(expected["data"], key=key) == sorted(found["data"], key=key)
    else:
        assert expected.get("data") == found.get("data")
