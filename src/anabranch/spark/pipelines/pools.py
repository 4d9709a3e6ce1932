"""Chooses the pool of Spark's scheduler in which a query's tasks wait for a processor.

Among the pools with the fewest running tasks, Spark's fair scheduler always takes the first by name
(`FairSchedulingAlgorithm`). If more pools than processors are busy, the last names never get one: with a pool for each
query, eight queries with a micro-batch each second kept two processors from a ninth for minutes. With at most as many
pools as processors, each pool gets its share. Within a pool the oldest micro-batch comes first, so no query waits for
more than one micro-batch of each other one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["next_pool"]

_started = itertools.count()


def next_pool(spark: SparkSession) -> str:
    """The pool for the next query that starts in this process; one after the other."""
    context = spark.sparkContext._jsc.sc()
    processors = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    return f"queries-{next(_started) % max(processors, 1)}"
