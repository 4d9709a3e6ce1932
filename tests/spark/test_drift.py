"""Drift detection with Spark: what river finds on the same values, once, also across a batch that is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import InvalidSql
from anabranch.model.columns import TIME_TYPE
from anabranch.spark.pipelines.run import run
from tests.spark.pipelines import BASE, SOURCE, new_store, rows
from tests.spark.test_windows import forget_last_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DRIFTS = """
CREATE STREAM out.drifts WITH (key = device, start_query = retrain) AS
SELECT device, drift.time AS at, drift.offset, drift.mean_before, drift.mean_after
FROM STREAM iot.sensors
WHERE celsius < 100
DETECT DRIFT OF celsius BY device USING adwin(delta => 0.01)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        opened.queries.deploy("retrain", "…", start=False)
        yield opened


def put(store: ab.Store, first: int, count: int) -> None:
    """Values of 20 devices, which are higher for each of them from some number on; a few are extreme."""
    chance = np.random.default_rng(first)
    numbers = np.arange(first, first + count)
    devices = chance.integers(20, size=count)
    celsius = chance.normal(np.where(numbers < 3_000 + 100 * devices, 20, 26), 2)
    celsius[::500] = 1_000
    table = pa.table(
        {
            "device": [f"d{each}" for each in devices],
            "at": pa.array(BASE + numbers * 1_000, TIME_TYPE),
            "celsius": celsius,
        }
    )
    store.write(SOURCE, table, atomic=True)


def by_river(store: ab.Store) -> list[tuple[str, int]]:
    from river.drift import ADWIN  # takes seconds to import

    detectors: dict[str, ADWIN] = {}
    found = []
    with store.reader(SOURCE) as reader:
        for event in reader:
            if (value := event.body["celsius"]) >= 100:
                continue
            detector = detectors.setdefault(event.body["device"], ADWIN(delta=0.01))
            detector.update(value)
            if detector.drift_detected:
                found.append((event.body["device"], event.pointer.offset))
    return sorted(found)


def test_drift_is_what_river_finds_and_starts_the_query(spark: SparkSession, store: ab.Store) -> None:
    put(store, 0, 2_000)
    pipeline = run(store, DRIFTS, name="drifts", spark=spark, once=True)
    assert pipeline.await_termination(240)
    early = rows(store, "out/drifts")
    assert (store.queries.get("retrain").state == "stopped") == (not early)
    forget_last_commit(pipeline.checkpoints["out/drifts"])
    put(store, 2_000, 6_000)
    again = run(store, DRIFTS, name="drifts", spark=spark, once=True, events_max=2_500)
    assert again.await_termination(240)
    changes = {
        (row["device"], row["offset"]): (row["mean_before"], row["mean_after"]) for row in rows(store, "out/drifts")
    }
    assert sorted(changes) == by_river(store)
    assert len(changes) == len(rows(store, "out/drifts"))
    assert {device for device, _ in changes} == {f"d{number}" for number in range(20)}
    upwards = [means for means in changes.values() if means[1] - means[0] > 3]
    assert len(upwards) >= 20
    assert np.mean(upwards, axis=0) == pytest.approx([20, 26], abs=0.7)
    assert store.queries.get("retrain").state != "stopped"


@pytest.mark.parametrize(
    ("old", "new", "message", "line"),
    [
        ("= retrain", "= nothing", "start_query: query 'nothing' not found", 2),
        ("OF celsius", "OF fahrenheit", "fahrenheit", 3),
        ("drift.offset", "drift.number", "number", 3),
        ("key = device", "key = device, mode = complete", "can't have mode = complete", 2),
    ],
)
def test_what_is_wrong_is_said_at_its_line(
    spark: SparkSession, store: ab.Store, old: str, new: str, message: str, line: int
) -> None:
    with pytest.raises(InvalidSql, match=message) as refused:
        run(store, DRIFTS.replace(old, new), name="drifts", spark=spark, once=True)
    assert refused.value.line == line
    assert not store.streams.exists("out/drifts")
