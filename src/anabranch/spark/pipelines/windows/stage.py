"""The events of windows that are due as a streaming DataFrame, and the results that a statement makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from anabranch.errors import InvalidArgument, InvalidSql
from anabranch.model.columns import APPENDED, RESERVED
from anabranch.model.stream import StreamInfo
from anabranch.spark.pipelines.publish import publish
from anabranch.spark.pipelines.windows.clauses import RESULTS_VIEW, WindowedQuery
from anabranch.spark.pipelines.windows.columns import (
    COUNT_WINDOW,
    KEY,
    NUMBER,
    OFFSET,
    ORDER,
    PANE,
    SEGMENT,
    SESSION_WINDOW,
    TIME,
    WINDOW,
)
from anabranch.spark.pipelines.windows.count import CountWindow
from anabranch.spark.pipelines.windows.drift import DRIFT, DRIFT_FIELDS, VALUE, DriftDetector, MeanTracker
from anabranch.spark.pipelines.windows.processor import CountWindows, DriftProcessor, PaneWindows
from anabranch.spark.pipelines.windows.row_blobs import (
    BLOB,
    BUCKET,
    BUCKETS,
    NOW,
    packed_by_bucket,
    packed_for_all_buckets,
    unpacked,
)
from anabranch.spark.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

__all__ = ["WindowResults", "events_of_windows", "results_of_nothing", "run_sql"]

_BOUNDS = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])
_COUNT_BOUNDS = StructType([*_BOUNDS, StructField("first", StringType())])
_PANE = StructType(
    [
        StructField("timing", StringType()),
        StructField("index", LongType()),
        StructField("retraction", BooleanType()),
    ]
)
_DRIFT = from_arrow_type(DRIFT_FIELDS)


def events_of_windows(events: DataFrame, windowed: WindowedQuery, source: StreamInfo) -> DataFrame:
    """The events of windows that are due, with their window, from what `windowed.events` selects from `source`. If that
    has no event time, their append time bounds windows of a number of events. Raises InvalidSql."""
    time = source.schema.time
    columns = [name for name in events.columns if not name.startswith(KEY)]
    if windowed.words is not None:
        columns = [name for name in columns if name.lower() in windowed.words]
    fields = [events.schema[name] for name in columns]
    keys = [_key(events, f"{KEY}{number}") for number in range(windowed.keys)]
    window, policy = windowed.window, windowed.emit
    asks = [functions.col(VALUE)] if isinstance(window, DriftDetector) else []
    if isinstance(window, DriftDetector):
        keys = keys or [functions.col("_segment").alias(f"{KEY}0")]
        try:
            MeanTracker(window)
        except InvalidArgument as exc:
            raise InvalidSql(str(exc)) from exc
        operator: StatefulProcessor = DriftProcessor(window)
        fields = [StructField(name, events.schema[f"{KEY}{n}"].dataType) for n, name in enumerate(window.keys)]
        fields.append(StructField(DRIFT, _DRIFT))
    elif isinstance(window, CountWindow):
        keys = keys or [functions.col("_segment").alias(f"{KEY}0")]
        operator = CountWindows(window, policy, len(keys), columns, source.id)
        if policy is None:
            fields += [StructField(COUNT_WINDOW, _BOUNDS), StructField(NUMBER, LongType())]
        else:
            fields += [StructField(COUNT_WINDOW, _COUNT_BOUNDS), StructField(PANE, _PANE)]
    else:
        assert policy is not None
        if window.column not in (time, APPENDED):
            raise InvalidSql(
                f"EMIT requires windows over the event time of the stream, or over {APPENDED}, not over '{window.column}'"
            )
        time = window.column
        keys = keys or [functions.lit(0).alias(f"{KEY}0")]
        operator = PaneWindows(window, policy, len(keys), columns)
        fields += [StructField(SESSION_WINDOW if window.is_session else WINDOW, _BOUNDS), StructField(PANE, _PANE)]
    asks_all = policy is not None and policy.early_us is not None
    wanted = events.select(
        *map(functions.col, map(quoted, columns)), *asks, *keys, *_order(time), _bucket(keys).alias(BUCKET)
    )
    buckets = wanted.mapInArrow(
        packed_for_all_buckets if asks_all else packed_by_bucket, f"{BUCKET} INT, {BLOB} BINARY"
    )
    if isinstance(window, CountWindow) and policy is not None:
        buckets = buckets.withColumn(NOW, functions.unix_micros(functions.current_timestamp()))
    due = buckets.groupBy(BUCKET).transformWithStateInPandas(
        operator, f"{BLOB} BINARY", "Append", "EventTime" if isinstance(operator, PaneWindows) else "None"
    )
    return due.mapInArrow(unpacked, StructType(fields))


def _order(time: str | None) -> list[Column]:
    times = functions.col(APPENDED) if time is None else functions.coalesce(time, APPENDED)
    segment, offset = functions.col("_segment"), functions.col("_offset")
    return [times.alias(TIME), segment.alias(SEGMENT), offset.alias(OFFSET)]


def _bucket(keys: list[Column]) -> Column:
    number = functions.pmod(functions.xxhash64(*keys), functions.lit(len(BUCKETS))).cast("int") + 1
    return functions.element_at(functions.array(*map(functions.lit, BUCKETS)), number)


def _key(events: DataFrame, name: str) -> Column:
    kind = events.schema[name].dataType
    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        raise InvalidSql(f"expected plain values as keys of windows, got {kind.simpleString()}")
    column = functions.col(name)
    # -0.0 equals 0.0, but hashes differently.
    return (column + functions.lit(0.0).cast(kind)).alias(name) if isinstance(kind, DoubleType | FloatType) else column


def run_sql(spark: SparkSession, sql: str, arguments: Mapping[str, Any]) -> DataFrame:
    """The query with these values of its parameters."""
    return spark.sql(sql, dict(arguments)) if arguments else spark.sql(sql)


def results_of_nothing(spark: SparkSession, frame: DataFrame, sql: str, arguments: Mapping[str, Any]) -> DataFrame:
    """The results of no events, for their columns."""
    return _results(spark, spark.createDataFrame([], frame.schema), sql, arguments)


def _results(spark: SparkSession, frame: DataFrame, sql: str, arguments: Mapping[str, Any]) -> DataFrame:
    frame.createOrReplaceTempView(RESULTS_VIEW)
    try:
        results = run_sql(spark, sql, arguments)
    finally:
        spark.catalog.dropTempView(RESULTS_VIEW)
    if ORDER in results.columns:  # each retraction comes after the result that it takes back, and before the next one
        keys = [name for name in results.columns if name.startswith(KEY)]
        results = results.repartition(*keys) if keys else results.coalesce(1)
        results = results.sortWithinPartitions(ORDER).drop(*keys, ORDER)
    return results.drop(*RESERVED)


@dataclass(frozen=True, slots=True)
class WindowResults:
    """Called with the events of windows of each micro-batch: publishes the results once, whatever is repeated."""

    sql: str
    arguments: Mapping[str, Any]
    options: Mapping[str, str]
    found: Callable[[], object] | None = None  # called after a publication of results; again where one is repeated

    def __call__(self, frame: DataFrame, batch: int) -> None:
        results = _results(frame.sparkSession, frame, self.sql, self.arguments)
        if self.found is None:
            publish(results, batch, self.options)
            return
        results = results.persist()  # they are used twice, and are the outcome of a stateful operator
        try:
            publish(results, batch, self.options)
            if not results.isEmpty():
                self.found()
        finally:
            results.unpersist()
