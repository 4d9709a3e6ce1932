"""Functions of a query's wheels and WebAssembly modules, in statements and as handlers of micro-batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.errors import InvalidSql, PipelineFailed
from anabranch.spark.pipelines.run import run
from anabranch.spark.queries.validate import validate
from tests.spark.pipelines import new_store, put, rows
from tests.wasm_modules import function as wasm_function
from tests.wasm_modules import heat, module, over
from tests.wheels import wheel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

WHEEL = "scoring-1.0-py3-none-any.whl"
CODE = """
import json
from functools import cache
import pyarrow.compute as pc
from anabranch.spark import resource

@cache
def model():
    return json.loads(resource("model.json").read_text())

def score(celsius, weight):
    return celsius * model()["slope"] * weight + model()["intercept"]

def doubled(celsius):
    return pc.multiply(celsius, 2)

def label(device):
    return ["device " + each for each in device]

def broken(celsius):
    raise ValueError("no model\\nfor this")

def short(celsius):
    return celsius[:-1]

def alerts(rows, batch):
    assert batch >= 0
    hot = rows[rows.celsius > 3]
    return [{"device": row.device, "text": f"{row.celsius:g} of {len(rows)}", "at": row.at} for row in hot.itertuples()]

def totals(table, batch):
    return {"device": "x"} if batch < 0 else table.group_by("device").aggregate([("celsius", "sum")]).rename_columns(["device", "total"])
"""
FILES = {
    WHEEL: wheel({"scoring/__init__.py": "", "scoring/model.py": CODE}),
    "model.json": b'{"slope": 10, "intercept": 1}',
}


def function(name: str, rest: str, target: str | None = None) -> str:
    return f"CREATE FUNCTION {name}{rest} 'scoring.model:{target or name}';\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def once(
    store: ab.Store, spark: SparkSession, sql: str, files: Mapping[str, bytes] = FILES, *, name: str = "q"
) -> None:
    with run(store, sql, name=name, spark=spark, once=True, files=files) as pipeline:
        assert pipeline.await_termination(600)


def texts(store: ab.Store) -> list[tuple[str, str]]:
    return sorted((row["device"], row["text"]) for row in rows(store, "out/alerts"))


def by_device(store: ab.Store, stream: str) -> list[dict[str, Any]]:
    return sorted(rows(store, stream), key=lambda row: json.dumps(row, default=str))


def test_statements_call_functions_of_a_wheel_that_read_a_model(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(4))
    sql = (
        function("score", "(celsius DOUBLE, weight DOUBLE) RETURNS DOUBLE AS PYTHON")
        + function("twice", "(celsius DOUBLE) RETURNS DOUBLE AS ARROW", "doubled")
        + function("label", "(device STRING) RETURNS STRING AS PYTHON")
        + "CREATE STREAM out.scores AS SELECT label(device) AS device, score(weight => 2, celsius => celsius) AS s,"
        + " twice(CAST(celsius AS INT)) AS t FROM STREAM iot.sensors WHERE score(celsius, 1) > 1"
    )
    once(store, spark, sql)
    assert sorted((row["device"], row["s"], row["t"]) for row in rows(store, "out/scores")) == [
        ("device d0", 61.0, 6.0),
        ("device d1", 21.0, 2.0),
        ("device d2", 41.0, 4.0),
    ]


@pytest.mark.slow
def test_one_session_calls_several_versions_of_the_same_code(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(2))
    score = function("score", "(celsius DOUBLE, weight DOUBLE) RETURNS DOUBLE AS PYTHON")
    for number, slope in enumerate((1, 0, 1)):
        files = {**FILES, "model.json": f'{{"slope": {slope}, "intercept": 7}}'.encode()}
        use = f"CREATE STREAM out.s{number} AS SELECT score(celsius, 1) AS s FROM STREAM iot.sensors"
        once(store, spark, score + use, files, name=f"q{number}")
        assert sorted(row["s"] for row in rows(store, f"out/s{number}")) == [7.0, 7.0 + slope]


@pytest.mark.slow
def test_windows_aggregate_what_functions_return(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(31))
    sql = function("score", "(celsius DOUBLE, weight DOUBLE) RETURNS DOUBLE AS PYTHON") + (
        "CREATE STREAM out.sums WITH (watermark = '1 second') AS SELECT window.end AS closed, sum(score(celsius, 1)) AS s "
        "FROM STREAM iot.sensors GROUP BY window(at, '10 seconds')"
    )
    once(store, spark, sql)
    celsius = [float(second % 7) for second in range(20)]
    assert sorted(row["s"] for row in rows(store, "out/sums")) == sorted(
        sum(10 * each + 1 for each in celsius[start : start + 10]) for start in (0, 10)
    )


@pytest.mark.slow
def test_statements_call_functions_of_a_webassembly_module(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(3))
    sql = (
        "CREATE FUNCTION fahrenheit(celsius DOUBLE) RETURNS DOUBLE AS WASM 'heat:score';"
        "CREATE STREAM out.f AS SELECT device, fahrenheit(celsius) AS f, fahrenheit(nullif(celsius, 1)) AS n FROM STREAM iot.sensors"
    )
    once(store, spark, sql, {"heat.wasm": heat()})
    assert sorted((row["device"], row["f"], row["n"]) for row in rows(store, "out/f")) == [
        ("d0", 32.0, 32.0),
        ("d1", 33.8, None),
        ("d2", 35.6, 35.6),
    ]


def test_a_handler_gets_each_micro_batch_as_a_whole(spark: SparkSession, store: ab.Store) -> None:
    handler = function(
        "alerts",
        "(device STRING, celsius DOUBLE, at TIMESTAMP) RETURNS TABLE (device STRING, text STRING, at TIMESTAMP) AS PYTHON",
    )
    sql = handler + "CREATE STREAM out.alerts WITH (handler = alerts) AS SELECT *, 1 AS more FROM STREAM iot.sensors"
    put(store, range(6))
    once(store, spark, sql)
    assert texts(store) == [("d1", "4 of 6"), ("d2", "5 of 6")]
    put(store, [11, 12])
    once(store, spark, sql)
    assert texts(store) == [("d0", "5 of 2"), ("d1", "4 of 6"), ("d2", "4 of 2"), ("d2", "5 of 6")]
    once(store, spark, sql)
    info = store.streams.get("out/alerts")
    assert (len(rows(store, "out/alerts")), info.schema.key, info.schema.time) == (4, "device", "at")


def test_a_handler_in_webassembly_gets_each_micro_batch_in_an_instance_of_its_own(
    spark: SparkSession, store: ab.Store
) -> None:
    sql = (
        "CREATE FUNCTION over(n BIGINT) RETURNS TABLE (n BIGINT, twice DOUBLE) AS WASM 'many:over';"
        "CREATE STREAM out.many WITH (handler = over) INTO out.last WHEN twice IS NULL AS "
        "SELECT device, CAST(celsius AS INT) AS n FROM STREAM iot.sensors"
    )
    put(store, range(6))
    once(store, spark, sql, {"many.wasm": over()})
    put(store, [4])
    once(store, spark, sql, {"many.wasm": over()})
    assert sorted((row["n"], row["twice"]) for row in rows(store, "out/many")) == [
        (3, 6.0),
        (4, 8.0),
        (4, 8.0),
        (5, 10.0),
    ]
    assert [row["n"] for row in rows(store, "out/last")] == [6, 1], "how many rows each micro-batch had"


@pytest.mark.slow
def test_a_handler_in_webassembly_that_fails_ends_the_run_with_one_line(spark: SparkSession, store: ab.Store) -> None:
    put(store, range(3))
    sql = (
        "CREATE FUNCTION f(celsius DOUBLE) RETURNS TABLE (n BIGINT) AS WASM 'bad:f';"
        "CREATE STREAM out.a WITH (handler = f) AS SELECT celsius FROM STREAM iot.sensors"
    )
    with pytest.raises(
        PipelineFailed, match=r"^pipeline 'q' failed at out/a: the module's function f failed: .*unreachable"
    ):
        once(store, spark, sql, {"bad.wasm": module(wasm_function("f", "unreachable"))})


@pytest.mark.slow
def test_a_handler_over_arrow_feeds_side_outputs_too(spark: SparkSession, store: ab.Store) -> None:
    handler = function("totals", "(device STRING, celsius DOUBLE) RETURNS TABLE (device STRING, total DOUBLE) AS ARROW")
    sql = handler + (
        "CREATE STREAM out.totals WITH (handler = totals) INTO out.large WHEN total > 4 AS "
        "SELECT device, celsius FROM STREAM iot.sensors"
    )
    put(store, range(6))
    once(store, spark, sql)
    assert by_device(store, "out/totals") == [{"device": "d0", "total": 3.0}]
    assert by_device(store, "out/large") == [{"device": "d1", "total": 5.0}, {"device": "d2", "total": 7.0}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken", "function 'broken' failed: ValueError: no model for this"),
        ("short", "function 'short' failed: it returned .* values for .* rows"),
        ("missing", "function 'missing' failed: AttributeError: module 'scoring.model' has no attribute 'missing'"),
    ],
)
def test_a_function_that_fails_ends_the_run_with_one_line(
    spark: SparkSession, store: ab.Store, name: str, message: str
) -> None:
    put(store, range(3))
    sql = function(name, "(celsius DOUBLE) RETURNS DOUBLE AS PYTHON") + (
        f"CREATE STREAM out.a AS SELECT {name}(celsius) AS s FROM STREAM iot.sensors"
    )
    with pytest.raises(PipelineFailed, match=f"^pipeline 'q' failed at out/a: {message}$"):
        once(store, spark, sql)


@pytest.mark.slow
def test_a_check_needs_no_code(spark: SparkSession, store: ab.Store) -> None:
    score = function("score", "(celsius DOUBLE, weight DOUBLE) RETURNS DOUBLE AS PYTHON")
    alerts = function("alerts", "(device STRING, celsius DOUBLE) RETURNS TABLE (device STRING, n INT) AS PYTHON")
    use = "CREATE STREAM out.a AS SELECT device, score(celsius, 1) AS s FROM STREAM iot.sensors;"
    handled = "CREATE STREAM out.b WITH (handler = alerts) AS SELECT device, celsius FROM STREAM iot.sensors"
    found = validate(store, score + alerts + use + handled, spark=spark)
    assert [dict(each.columns) for each in found.statements] == [
        {"device": "string", "s": "double"},
        {"device": "string", "n": "int32"},
    ]
    with pytest.raises(InvalidSql, match=r"line 2: .*score") as wrong:
        validate(store, score + use.replace("score(celsius, 1)", "score(celsius)"), spark=spark)
    assert "anabranch_fn" not in str(wrong.value)
    with pytest.raises(InvalidSql, match="line 1: 'alerts' takes the column 'celsius', but the query has only: device"):
        validate(store, alerts + handled.replace("device, celsius", "device"), spark=spark)
    put(store, [0])
    once(store, spark, score + use)  # the same function, which now has its code
    assert [row["s"] for row in rows(store, "out/a")] == [1.0]
