"""Starts a prepared statement as a streaming query of Spark."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from anabranch.spark.options import to_json_option
from anabranch.spark.pipelines.analyze import invalid_sql, padded
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.prepare import PreparedQuery
from anabranch.spark.pipelines.publish import BatchHandler, publish
from anabranch.spark.pipelines.statement import Statement
from anabranch.spark.pipelines.windows.stage import WindowResults
from anabranch.spark.stores import FORMAT, stream_options
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["next_pool", "start", "use_session"]

_started = itertools.count()


def start(
    spark: SparkSession,
    store: Store,
    step: Step,
    made: PreparedQuery,
    *,
    name: str,
    once: bool,
    trigger_us: int | None,
    run: tuple[str, str],
    follow: Callable[[BatchHandler], BatchHandler] | None = None,
) -> StreamingQuery:
    """Start a prepared query under `name`. `run` is the name of its pipeline and the token of the run. `trigger_us` is
    the time between micro-batches of a statement without an own trigger. In a run that follows another, `follow` wraps
    the handler that publishes a batch in one that decides whether to publish it, and the sources pause between batches.
    Raises InvalidSql for anything that Spark refuses only at this point."""
    statement = step.statement
    use_session(spark)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", next_pool(spark))
    options = {
        **stream_options(store, statement.target, made.target),
        "checkpointLocation": made.checkpoint.for_spark,
        "checkpointUrl": made.checkpoint.text,
        "pipelineRun": json.dumps(run),
    }
    if made.late is not None:
        options["late"] = to_json_option(made.late)
    if sides := (*made.sides, *made.feedback):
        options["outputs"] = json.dumps([str(each) for each in sides])
    writer = made.frame.writeStream.queryName(name).outputMode(statement.options.mode).options(**options)
    handler = _handler(store, statement, options, follows=follow is not None)
    if handler is None:
        writer = writer.format(FORMAT)
    else:
        writer = writer.foreachBatch(handler if follow is None else follow(handler))
    pause_us = trigger_us if statement.options.trigger_us is None else statement.options.trigger_us
    if once:
        writer = writer.trigger(availableNow=True)
    elif follow is None and pause_us is not None:
        writer = writer.trigger(processingTime=f"{pause_us // 1000} milliseconds")
    try:
        return writer.start()
    except PySparkException as exc:
        raise invalid_sql(exc, statement.query_line) from exc


def use_session(session: SparkSession) -> None:
    """Make it this thread's active session: there Spark looks up Python data sources, and a new thread has none."""
    spark: Any = session
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def _handler(store: Store, statement: Statement, options: Mapping[str, str], *, follows: bool) -> BatchHandler | None:
    """The handler that publishes a micro-batch; None if the sink publishes it."""
    if statement.windowed is not None:
        results = padded(statement, statement.windowed.results)
        retrain = statement.options.start_query
        # If that query was deleted, this statement ends with QueryNotFound.
        on_drift = None if retrain is None else partial(store.queries.start, retrain)
        return WindowResults(results, statement.arguments, options, on_drift)
    return partial(publish, options=options, replace=statement.options.mode == "complete") if follows else None


def next_pool(spark: SparkSession) -> str:
    """The pool of Spark's scheduler for the next query that starts in this process; one after the other, as many as processors.

    Among the pools with the fewest running tasks, the fair scheduler always takes the first by name
    (`FairSchedulingAlgorithm`). With more pools than processors, the last names may never get one: with a pool for each query,
    eight queries with a micro-batch each second kept two processors from a ninth for minutes. Within a pool the oldest
    micro-batch comes first, so no query waits for more than one micro-batch of each other one."""
    context = spark.sparkContext._jsc.sc()
    processors = context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    return f"queries-{next(_started) % max(processors, 1)}"
