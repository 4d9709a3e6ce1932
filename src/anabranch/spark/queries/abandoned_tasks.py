"""Tasks that go on in Spark although their job has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["abandoned_tasks"]


def abandoned_tasks(spark: SparkSession) -> int:
    """About how many there are. Jobs that begin or end meanwhile make it wrong for a moment, in either direction."""
    tracker: Any = spark.sparkContext._jsc.sc().statusTracker()
    running = sum(each.numRunningTasks() for each in tracker.getExecutorInfos())
    stages = (tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds())
    # The value of an Option of Scala is its only element.
    return int(running - sum(each.productElement(0).numActiveTasks() for each in stages if each.isDefined()))
