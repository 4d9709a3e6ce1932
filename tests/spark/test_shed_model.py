"""Load shedding in pipelines over random events, held to a model that knows which events each recorded keep rate chooses, and
to DuckDB over exactly these."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.core import sample_estimates
from anabranch.core.shed_rule import draws
from anabranch.model.columns import TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.spark.pipelines.run import Pipeline, run
from tests.spark.pipelines import BASE, SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_SCHEMA = pa.schema([("device", pa.string()), ("at", TIME_TYPE), ("x", pa.int64()), ("urgency", pa.float64())])
_SPREAD_S: Final = 60
_DISORDER_S: Final = 25  # less than the watermark's delay, so no event is late

_Row = dict[str, Any]
_Results = dict[tuple[int, str], Any]
"""By the end of a window and its device: numbers, or what pytest compares them with."""


@dataclass(frozen=True)
class _Query:
    """A statement, and how the model knows which events it reads: `priority` is the chance of an event at least."""

    rule: str
    window: str
    bucket: str
    priority_sql: str = ""
    where: str = "true"
    priority: Callable[[_Row], float] = lambda row: 0.0

    def text(self, name: str, rule: str) -> str:
        priority = f', shed_priority = "{self.priority_sql}"' if self.priority_sql else ""
        return f"""CREATE STREAM out.{name} WITH (watermark = '30 seconds', shed = '{rule}'{priority}) AS
            SELECT window.end AS closed, device, count(*) AS events, count(x) AS known, sum(x) AS total, avg(x) AS mean
            FROM STREAM iot.sensors WHERE {self.where} GROUP BY window(at, {self.window}), device"""


_TENS: Final = ("'10 seconds'", "[second // 10 * 10 + 10]")
_SLIDING: Final = ("'20 seconds', '10 seconds'", "[second // 10 * 10 + 10, second // 10 * 10 + 20]")
_QUERIES: Final = {
    "plain": _Query("rate > 40", *_TENS),
    "lagging": _Query("lag > 500 ms", *_SLIDING),
    "alarms": _Query(
        "rate > 20", *_TENS, "x > 5", "x IS DISTINCT FROM 3", lambda row: float(row["x"] is not None and row["x"] > 5)
    ),
    "urgent": _Query("rate > 10", *_SLIDING, "urgency", "true", lambda row: min(row["urgency"] or 0.0, 1.0)),
}


def _drawn(seed: int) -> list[tuple[str, int, int, int | None, float | None]]:
    """Events as their device, time, delay, value and urgency. Hypothesis begins with the simplest lists, whose events are
    all equal."""
    chance = random.Random(seed)
    return [
        (
            chance.choice("abc"),
            chance.randint(0, _SPREAD_S),
            chance.randint(0, _DISORDER_S),
            chance.choice([None, *range(-9, 10)]),
            chance.choice([None, -1.0, 0.0, 0.3, 0.8, 1.0, 7.0]),
        )
        for _ in range(chance.randint(80, 200))
    ]


_events = st.integers(0, 1 << 32).map(_drawn)
_runs = count()


@settings(
    max_examples=2,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # each example starts Spark's queries: shrinking one takes too long
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(drawn=_events, events_max=st.sampled_from([None, 15, 40]))
def test_estimates_of_random_events_are_those_of_the_events_that_the_model_keeps(
    spark: SparkSession, tmp_path: Path, drawn: list[Any], events_max: int | None
) -> None:
    ordered = sorted(drawn, key=lambda each: each[1] + each[2])
    with ab.connect(tmp_path / f"river-{next(_runs)}", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/sensors", schema=_SCHEMA, key="device", time="at", scaling=2)
        with store.writer("iot/sensors") as writer:
            for begin in range(0, len(ordered), 40):
                rows = [
                    {"device": device, "at": BASE + at * SECOND, "x": x, "urgency": urgency}
                    for device, at, _, x, urgency in ordered[begin : begin + 40]
                ]
                writer.write_batch(pa.Table.from_pylist(rows, _SCHEMA), atomic=True)
        events = _stored(store, "iot/sensors")
        sql = ";\n".join(query.text(name, query.rule) for name, query in _QUERIES.items())
        with run(store, sql, name="shed", spark=spark, once=True, flush=True, events_max=events_max) as pipeline:
            pipeline.await_termination()
        shed = {each.target.removeprefix("out/"): each.run_shed for each in pipeline.last_progress}
        for name, query in _QUERIES.items():
            rates = _rates(events, _offsets(pipeline, f"out/{name}"), query)
            kept = [row | {"rate": rate} for row, rate in zip(events, rates, strict=True) if row["draw"] < rate]
            assert shed[name] == len(events) - len(kept), name
            assert _found(store, name) == _estimated(kept, query), name
        assert sum(shed.values()), "some query shed"

        exact = ";\n".join(query.text(name, "never") for name, query in _QUERIES.items())
        with run(
            store, exact, name="shed", spark=spark, once=True, flush=True, start_from="head", replace=True
        ) as pipeline:
            pipeline.await_termination()
        for name, query in _QUERIES.items():
            repaired = _found(store, name)
            assert repaired == _estimated([row | {"rate": 1.0} for row in events], query), name
            for _, count_error, _, known_error, _, total_error, _, mean_error, part in repaired.values():
                assert {count_error, known_error, mean_error, part} == {0}
                assert total_error == 0 or math.isnan(total_error)  # of nulls


def _stored(store: ab.Store, stream: str) -> list[_Row]:
    """Its events, with what chooses them: their segment, offset and number."""
    with store.reader(stream) as reader:
        table = pa.Table.from_batches(list(reader.batches()), schema=reader.schema)
    rows = table.to_pylist()
    for row in rows:
        row["draw"] = float(draws(row["_segment"], np.array([row["_offset"]]))[0])
    return rows


def _offsets(pipeline: Pipeline, target: str) -> list[dict[str, str]]:
    """The source's offset of each batch, as in the checkpoint."""
    folder = Path(pipeline.checkpoints[target]) / "offsets"
    files = sorted((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    return [json.loads(line) for each in files for line in each.read_text().splitlines() if '"cut"' in line]


def _rates(events: Sequence[_Row], offsets: Sequence[dict[str, str]], query: _Query) -> list[float]:
    """The chance of each event: that of the first batch which ends behind it, or its priority."""
    ends = [
        ({s.packed: o for s, o in StreamCut.parse(each["cut"])}, float(each.get("keepRate", 1))) for each in offsets
    ]
    return [
        max(
            next(rate for end, rate in ends if row["_offset"] < end.get(row["_segment"], 0)),
            query.priority(row),
        )
        for row in events
    ]


def _estimated(kept: Sequence[_Row], query: _Query) -> _Results:
    """By DuckDB which events a window has, and what they add up to."""
    columns = {name: [row[name] for row in kept] for name in ("device", "at", "x", "rate")}
    fields = [*(_SCHEMA.field(name) for name in ("device", "at", "x")), pa.field("rate", pa.float64())]
    with duckdb.connect() as database:
        database.register("kept", pa.table(columns, pa.schema(fields)))
        found = database.execute(
            f"""SELECT closed, device, count(*), sum(1 / rate), sum(x / rate),
                sum(x / rate) / sum(1 / rate) FILTER (WHERE x IS NOT NULL), list(x), list(1 / rate)
            FROM (
                SELECT *, unnest({query.bucket}) AS closed
                FROM (SELECT *, epoch("at")::BIGINT - {BASE // SECOND} AS second FROM kept WHERE {query.where})
            ) GROUP BY closed, device"""
        ).fetchall()
    results = {}
    for closed, device, read, size, total, mean, values, weights in found:
        known = np.array([value is not None for value in values])
        valued = np.array([value for value in values if value is not None], np.float64)
        each = np.array(weights)
        every, counted = sample_estimates.count(each), sample_estimates.count(each[known], each[~known])
        summed = sample_estimates.total(valued, each[known]).error if known.any() else None
        averaged = sample_estimates.average(valued, each[known]).error if known.any() else 0.0
        row = [*every, *counted, total, summed, mean, averaged, 1 - read / size]
        results[int(closed), device] = pytest.approx(_plain(row), rel=1e-9, abs=1e-9, nan_ok=True)
    return results


def _found(store: ab.Store, name: str) -> _Results:
    columns = [*(f"{each}{end}" for each in ("events", "known", "total", "mean") for end in ("", "_error")), "_shed"]
    with store.reader(f"out/{name}") as reader:
        rows = [event.body for event in reader]
    found = {
        (round(row["closed"].timestamp()) - BASE // SECOND, row["device"]): _plain([row[each] for each in columns])
        for row in rows
    }
    assert len(found) == len(rows)
    return found


def _plain(values: Sequence[float | None]) -> list[float]:
    """Null as NaN, which pytest compares."""
    return [math.nan if value is None else value for value in values]
