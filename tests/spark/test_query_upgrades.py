"""Upgrades of queries whose statements keep their state: each change that the plan allows gives the numbers of a run that
had it from the start, or from there on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.spark.pipelines.plan import plan
from anabranch.spark.pipelines.run import Pipeline, run
from anabranch.spark.queries.upgrade import compare
from tests.spark.pipelines import COUNTS, counted, expected, new_store, put, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HOT = "CREATE STREAM out.hot AS SELECT device, at, celsius FROM STREAM iot.sensors WHERE celsius >= 5"
SUMS = """
CREATE STREAM out.sums WITH (watermark = '0 seconds') AS
SELECT window.end AS closed, sum(celsius) AS total FROM STREAM iot.sensors GROUP BY window(at, '20 seconds')
"""
LAST = "CREATE STREAM out.last AS SELECT device, events FROM STREAM out.counts"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ab.Store]:
    with new_store(tmp_path / "river") as opened:
        yield opened


def finished(pipeline: Pipeline) -> Pipeline:
    with pipeline:
        pipeline.await_termination()
    return pipeline


def test_statements_go_on_with_their_state_beside_some_that_start_over(spark: SparkSession, store: ab.Store) -> None:
    before = f"{COUNTS};{HOT};{SUMS}"
    after = ";".join(
        (
            COUNTS.replace("'5 seconds'", "'30 seconds'"),
            HOT.replace(">= 5", "< 2"),
            SUMS.replace("'20 seconds'", "'50 seconds'"),
            LAST,
        )
    )
    found = {each.target: each.verdict for each in compare(plan(before), plan(after))}
    assert found == {
        "out/counts": "keeps state",
        "out/hot": "keeps state",
        "out/sums": "restarts",
        "out/last": "new",
    }
    put(store, range(98))  # windows from 90 on, and from 80 on, are still open
    finished(run(store, before, name="q", spark=spark, once=True))
    hot = [row["celsius"] for row in rows(store, "out/hot")]
    assert set(hot) == {5.0, 6.0}
    put(store, [*range(160, 200), *range(98, 160)])  # later than a watermark of 5 seconds would take
    with pytest.raises(InvalidArgument, match="has changed since pipeline 'q' wrote its checkpoints"):
        run(store, after, name="q", spark=spark, once=True)
    begun = ["out/sums", "out/last"]
    finished(run(store, after, name="q", spark=spark, once=True, only=begun, start_from="head", replace=True))
    assert counted(store) == expected(store, until=199 - 30)
    late = [round(row["at"].timestamp()) for row in rows(store, "out/counts_late")]
    assert late == []
    assert Counter(row["celsius"] for row in rows(store, "out/hot")[len(hot) :]) == Counter(
        float(n % 7) for n in range(98, 200) if n % 7 < 2
    )
    sums = sorted((row["closed"], row["total"]) for row in rows(store, "out/sums"))
    assert [total for _, total in sums] == [sum(n % 7 for n in range(start, start + 50)) for start in range(0, 150, 50)]
    assert Counter((row["device"], row["events"]) for row in rows(store, "out/last")) == Counter(
        (device, events) for (_, device, events, _), n in counted(store).items() for _ in range(n)
    )
    put(store, range(200, 300))
    finished(run(store, after, name="q", spark=spark, once=True))
    assert counted(store) == expected(store, until=299 - 30)


def test_a_statement_without_a_checkpoint_can_not_go_on(spark: SparkSession, store: ab.Store) -> None:
    with pytest.raises(InvalidArgument, match="the statement for out/hot can't go on: it has no checkpoint"):
        run(store, HOT, name="q", spark=spark, once=True, only=[])
