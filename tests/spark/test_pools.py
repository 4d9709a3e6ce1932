"""The pools of Spark's scheduler in which queries wait for a processor."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from anabranch.spark.pipelines.start import next_pool

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_QUERIES = 8
_SECONDS = 6.0
_TASK_S = 0.03


def test_no_query_is_starved_where_all_processors_are_busy(spark: SparkSession) -> None:
    done = _batches_by_query(spark, [next_pool(spark) for _ in range(_QUERIES)])
    assert min(done) > max(done) / 3, done


def test_with_a_pool_for_each_query_the_last_names_are_starved(spark: SparkSession) -> None:
    done = _batches_by_query(spark, [f"query-{number}" for number in range(_QUERIES)])
    assert min(done) <= max(done) / 3, f"{done}: Spark has changed, so pools of their own would do"


def _batches_by_query(spark: SparkSession, pools: list[str]) -> list[int]:
    """How many jobs each of these can run meanwhile, as the micro-batches of a query, in its pool."""
    context = spark.sparkContext
    done, ending = [0] * len(pools), time.monotonic() + _SECONDS

    def run(number: int) -> None:
        context.setLocalProperty("spark.scheduler.pool", pools[number])
        while time.monotonic() < ending:
            context.parallelize(range(2), 2).foreach(lambda _: time.sleep(_TASK_S))
            done[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(pools))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done
