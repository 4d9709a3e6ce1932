"""Side outputs, feedback and checks of a pipeline over random events, held to a model that takes one event after the other."""

from __future__ import annotations

import random
from collections import Counter
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.spark.pipelines.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_SCHEMA = pa.schema([("n", pa.int64()), ("x", pa.int64()), ("hops", pa.int64())])
_SQL: Final = """
CREATE STREAM out.done WITH (key = n)
  INTO out.large WHEN x > 40
  COPY INTO out.odd WHEN x % 2 <> 0
  FEEDBACK WITHIN {hops} HOPS INTO iot.work WHEN x > 1
AS SELECT n, x DIV 2 AS x, hops FROM STREAM iot.work
"""
_RESULTS: Final = ("done", "large", "odd", "rejected")

_Row = tuple[int, int | None, int | None]
"""An event's number, its value, and how often it was fed back."""


def _drawn(seed: int) -> list[list[int | None]]:
    """The values that are appended at once, several times. Hypothesis begins with the simplest lists."""
    chance = random.Random(seed)
    return [[chance.choice([None, *range(-9, 100)]) for _ in range(chance.randint(1, 15))] for _ in range(3)]


_runs = count()


@settings(
    max_examples=3,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # each example starts Spark's queries: shrinking one takes too long
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(batches=st.integers(0, 1 << 32).map(_drawn), hops_max=st.integers(1, 3), events_max=st.sampled_from([None, 7]))
def test_each_event_goes_round_and_out_as_the_model_says(
    spark: SparkSession, tmp_path: Path, batches: list[list[int | None]], hops_max: int, events_max: int | None
) -> None:
    sql = _SQL.format(hops=hops_max)
    outside: list[_Row] = []

    def run_once(store: ab.Store) -> None:
        with run(store, sql, name="halves", spark=spark, once=True, events_max=events_max) as pipeline:
            pipeline.await_termination()

    with ab.connect(tmp_path / f"river-{next(_runs)}", create=True) as store:
        store.scopes.create("iot")
        store.streams.create("iot/work", schema=_SCHEMA, key="n", scaling=2)
        run_once(store)  # which creates the streams of results
        store.streams.add_check("out/done", "known", "x IS NOT NULL", violations="out/rejected")
        for values in batches:
            rows: list[_Row] = [(len(outside) + number, x, None) for number, x in enumerate(values)]
            outside += rows
            columns: list[Any] = [list(each) for each in zip(*rows, strict=True)]
            store.write("iot/work", pa.table(columns, _SCHEMA))
            run_once(store)
        for _ in range(hops_max):  # each run feeds back once
            run_once(store)
        expected = _by_definition(outside, hops_max)
        assert {name: _found(store, f"out/{name}") for name in _RESULTS} == {name: expected[name] for name in _RESULTS}
        assert _found(store, "iot/work") == expected["work"]


def _by_definition(outside: list[_Row], hops_max: int) -> dict[str, Counter[_Row]]:
    """What each stream holds in the end."""
    found: dict[str, Counter[_Row]] = {name: Counter() for name in (*_RESULTS, "work")}
    left = list(outside)
    while left:
        event = left.pop()
        found["work"][event] += 1
        n, x, hops = event
        half = None if x is None else int(x / 2)  # towards zero
        if half is not None and half > 40:
            target = "large"
        elif half is not None and half > 1 and (hops or 0) < hops_max:
            target, hops = "work", (hops or 0) + 1
            left.append((n, half, hops))
        else:
            target = "rejected" if half is None else "done"
        if target != "work":
            found[target][n, half, hops] += 1
        if half is not None and half % 2:
            found["odd"][n, half, hops] += 1
    return found


def _found(store: ab.Store, stream: str) -> Counter[_Row]:
    with store.reader(stream) as reader:
        return Counter((event.body["n"], event.body["x"], event.body["hops"]) for event in reader)
