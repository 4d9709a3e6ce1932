"""Load shedding with Spark: estimates are those of the events that the recorded keep rates choose, also after a restart in
the middle of a batch, and a run without shedding repairs them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import anabranch as ab
from anabranch.core import sample_estimates
from anabranch.core.shed_rule import draws
from anabranch.errors import InvalidSql
from anabranch.model.columns import TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.spark.pipelines.run import Pipeline, run
from tests.spark.pipelines import BASE, SECOND, SOURCE, new_store, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MEANS = """
CREATE STREAM out.means WITH (key = device, time = closed, watermark = '0 seconds', shed = 'rate > 400') AS
SELECT window.end AS closed, device, count(*) AS events, sum(celsius) AS total, avg(celsius) AS mean
FROM STREAM iot.sensors
GROUP BY window(at, '10 seconds'), device
"""
NO_DATA_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
COMMIT = 1_000  # events appended at once, at so many a second


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def put_commit(store: ab.Store, number: int) -> None:
    """Events of 10 s from `number` * 10 s on."""
    numbers = np.arange(COMMIT)
    table = pa.table(
        {
            "device": [f"d{each % 3}" for each in numbers],
            "at": pa.array(BASE + number * 10 * SECOND + numbers * 10_000, TIME_TYPE),
            "celsius": pa.array(numbers % 40 - 10.0),
        }
    )
    with store.writer(SOURCE) as writer:
        writer.write_batch(table, atomic=True)


def offsets_of(pipeline: Pipeline) -> list[dict[str, str]]:
    """The source's offset of each batch, as in the checkpoint."""
    folder = Path(pipeline.checkpoints["out/means"]) / "offsets"
    files = sorted((each for each in folder.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    return [json.loads(line) for each in files for line in each.read_text().splitlines() if '"cut"' in line]


def stored(store: ab.Store) -> pa.Table:
    with store.reader(SOURCE) as reader:
        return pa.Table.from_batches(list(reader.batches()), schema=reader.schema)


def expected(store: ab.Store, offsets: list[dict[str, str]], priority: float | None = None) -> dict[Any, list[float]]:
    """The results by window and device, computed here from the recorded keep rates. Events hotter than `priority` are
    kept."""
    events = stored(store)
    segments, places = (events.column(name).cast(pa.int64()).to_numpy() for name in ("_segment", "_offset"))
    rates = np.full(len(events), np.nan)
    for offset in reversed(offsets):
        for segment, end in StreamCut.parse(offset["cut"]):
            rates[(segments == segment.packed) & (places < end)] = float(offset.get("keepRate", 1))
    assert not np.isnan(rates).any()
    celsius = events.column("celsius").to_numpy()
    if priority is not None:
        rates[celsius > priority] = 1
    numbers = np.empty(len(events))
    for segment in np.unique(segments):
        own = segments == segment
        numbers[own] = draws(int(segment), places[own])
    closed = (events.column("at").cast(pa.int64()).to_numpy() - BASE) // (10 * SECOND) * 10 + 10
    devices = events.column("device").to_numpy(zero_copy_only=False)
    found = {}
    for window in np.unique(closed):
        for device in np.unique(devices):
            own = (closed == window) & (devices == device) & (numbers < rates)
            weights = 1 / rates[own]
            count = sample_estimates.count(weights)
            total = sample_estimates.total(celsius[own], weights)
            mean = sample_estimates.average(celsius[own], weights)
            assert mean.error is not None
            shed = 1 - own.sum() / weights.sum()
            found[int(window), device] = [np.floor(count.value + 0.5), count.error, *total, *mean, shed]
    return found


def found(store: ab.Store) -> dict[Any, list[float]]:
    names = ("events", "events_error", "total", "total_error", "mean", "mean_error", "_shed")
    results = rows(store, "out/means")
    by_window = {
        ((round(row["closed"].timestamp() * SECOND) - BASE) // SECOND, row["device"]): [row[name] for name in names]
        for row in results
    }
    assert len(by_window) == len(results)
    return by_window


def same(one: dict[Any, list[float]], other: dict[Any, list[float]]) -> bool:
    assert one.keys() == other.keys()
    return all(each == pytest.approx(other[key], rel=1e-9, abs=1e-9) for key, each in one.items())


def forget_last_commit(pipeline: Pipeline) -> None:
    """As if the process had been killed in the last batch."""
    commits = Path(pipeline.checkpoints["out/means"]) / "commits"
    last = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    for each in (last, commits / f".{last.name}.crc"):
        each.unlink(missing_ok=True)


def test_a_batch_that_is_repeated_sheds_the_same_events_whatever_the_rule_is_by_then(
    spark: SparkSession, store: ab.Store
) -> None:
    put_commit(store, 0)
    spark.conf.set(NO_DATA_BATCHES, "false")
    try:
        pipeline = run(store, MEANS, name="means", spark=spark, once=True)
        assert pipeline.await_termination(240)
    finally:
        spark.conf.unset(NO_DATA_BATCHES)
    (progress,) = pipeline.last_progress
    assert progress.run_shed == 1_000 - json.loads(pipeline.queries["out/means"].recentProgress[0].json)["numInputRows"]
    assert 450 < progress.run_shed < 750
    assert not rows(store, "out/means")  # the batch's events are all in state
    forget_last_commit(pipeline)

    put_commit(store, 1)
    again = run(store, MEANS.replace("rate > 400", "never"), name="means", spark=spark, once=True, flush=True)
    assert again.await_termination(240)
    offsets = offsets_of(again)
    assert [offset.get("keepRate") for offset in offsets][:2] == ["0.4", None]
    assert same(found(store), expected(store, offsets))
    assert {key[0] for key, each in found(store).items() if each[-1] > 0} == {10}  # the second window is exact

    # Repaired: a time range, by the results of another run.
    exact = MEANS.replace("rate > 400", "never").replace("out.means", "out.repaired")
    assert run(store, exact, name="repair", spark=spark, once=True, flush=True).await_termination(240)
    with store.reader("out/repaired") as reader:
        repaired = pa.Table.from_batches(list(reader.batches()), schema=reader.schema)
    ends = [pa.scalar(BASE + seconds * SECOND, TIME_TYPE) for seconds in (10, 11)]
    first = repaired.filter(pc.equal(repaired.column("closed"), ends[0]))
    done = store.streams.replace("out/means", between=(ends[0].as_py(), ends[1].as_py()), with_=first)
    assert (done.removed, done.added) == (3, 3)
    assert len(found(store)) == 6
    assert all(each[-1] == 0 and each[1] == 0 for each in found(store).values())

    # Or: the whole run again, from events that the store still has.
    whole = run(
        store, MEANS.replace("rate > 400", "never"), name="means", spark=spark, once=True, flush=True,
        start_from="head", replace=True,
    )  # fmt: skip
    assert whole.await_termination(240)
    for (_, device), (events, events_error, _, total_error, _, mean_error, shed) in found(store).items():
        assert events == (334 if device == "d0" else 333)
        assert (events_error, total_error, mean_error, shed) == (0, 0, 0, 0)


def test_events_of_priority_are_always_kept(spark: SparkSession, store: ab.Store) -> None:
    put_commit(store, 0)
    sql = MEANS.replace("shed =", 'shed_priority = "celsius > 25", shed =')
    pipeline = run(store, sql, name="means", spark=spark, once=True, flush=True)
    assert pipeline.await_termination(240)
    offsets = offsets_of(pipeline)
    assert offsets[0]["keepRate"] == "0.4"
    assert same(found(store), expected(store, offsets, priority=25))
    (progress,) = pipeline.last_progress
    hot = int((stored(store).column("celsius").to_numpy() > 25).sum())
    assert 0 < progress.run_shed < 1_000 - hot


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sum(celsius)", "max_by(celsius, at)", "max_by can't be estimated"),
        ("avg(celsius) AS mean", "`max`(celsius) AS mean", "Max can't be estimated"),
        ("avg(celsius) AS mean", "avg(celsius) AS mean, 1 AS mean_error", "two columns are called 'mean_error'"),
        ("FROM STREAM iot.sensors", "FROM STREAM iot.sensors, range(3)", "can't have join"),
        ("shed =", 'shed_priority = "fahrenheit > 3", shed =', "fahrenheit"),
    ],
)
def test_what_a_plan_can_not_estimate_is_refused(
    spark: SparkSession, store: ab.Store, old: str, new: str, message: str
) -> None:
    with pytest.raises(InvalidSql, match=message):
        run(store, MEANS.replace(old, new), name="means", spark=spark, once=True)
    assert not store.streams.exists("out/means")
