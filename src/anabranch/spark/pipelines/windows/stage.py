"""The events of windows as a streaming DataFrame, and the results that a statement makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from anabranch.errors import InvalidSql
from anabranch.model.columns import RESERVED
from anabranch.spark.pipelines.windows.clauses import RESULTS_VIEW, WindowedQuery
from anabranch.spark.pipelines.windows.columns import COUNT_WINDOW, KEY, NUMBER, OFFSET, SEGMENT, TIME
from anabranch.spark.pipelines.windows.processor import CountWindows
from anabranch.spark.pipelines.windows.row_blobs import BLOB, BUCKET, BUCKETS, packed_by_bucket, unpacked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["WindowResults", "events_of_windows", "results_of_nothing"]

_BOUNDS = StructType([StructField("start", TimestampType()), StructField("end", TimestampType())])


def events_of_windows(events: DataFrame, windowed: WindowedQuery, time: str | None) -> DataFrame:
    """The events of complete windows, with their window, from what `windowed.events` selects. `time` is their event
    time; without one, their append time bounds windows. Raises InvalidSql."""
    columns = [name for name in events.columns if not name.startswith(KEY)]
    if windowed.words is not None:
        columns = [name for name in columns if name.lower() in windowed.words]
    keys = [_key(events, f"{KEY}{number}") for number in range(windowed.keys)]
    keys = keys or [functions.col("_segment").alias(f"{KEY}0")]
    bucket = functions.element_at(
        functions.array(*map(functions.lit, BUCKETS)),
        functions.pmod(functions.xxhash64(*keys), functions.lit(len(BUCKETS))).cast("int") + 1,
    )
    times = functions.col("_appended") if time is None else functions.coalesce(time, "_appended")
    wanted = [
        *map(_quoted, columns),
        *keys,
        times.alias(TIME),
        functions.col("_segment").alias(SEGMENT),
        functions.col("_offset").alias(OFFSET),
        bucket.alias(BUCKET),
    ]
    buckets = events.select(*wanted).mapInArrow(packed_by_bucket, f"{BUCKET} INT, {BLOB} BINARY").groupBy(BUCKET)
    processor = CountWindows(windowed.window, len(keys), columns)
    emitted = buckets.transformWithStateInPandas(processor, f"{BLOB} BINARY", "Append", "None")
    fields = [events.schema[name] for name in columns]
    schema = StructType([*fields, StructField(COUNT_WINDOW, _BOUNDS), StructField(NUMBER, LongType())])
    return emitted.mapInArrow(unpacked, schema)


def _quoted(name: str) -> Column:
    return functions.col(f"`{name.replace('`', '``')}`")


def _key(events: DataFrame, name: str) -> Column:
    kind = events.schema[name].dataType
    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        raise InvalidSql(f"a key of windows is a plain value, not of type {kind.simpleString()}")
    column = functions.col(name)
    # -0.0 equals 0.0, but hashes differently.
    return (column + functions.lit(0.0).cast(kind)).alias(name) if isinstance(kind, DoubleType | FloatType) else column


def results_of_nothing(spark: SparkSession, frame: DataFrame, sql: str, arguments: Mapping[str, Any]) -> DataFrame:
    """The results of no events, for their columns."""
    return _results(spark, spark.createDataFrame([], frame.schema), sql, arguments)


def _results(spark: SparkSession, frame: DataFrame, sql: str, arguments: Mapping[str, Any]) -> DataFrame:
    frame.createOrReplaceTempView(RESULTS_VIEW)
    try:
        results = spark.sql(sql, dict(arguments)) if arguments else spark.sql(sql)
    finally:
        spark.catalog.dropTempView(RESULTS_VIEW)
    return results.drop(*RESERVED)


@dataclass(frozen=True, slots=True)
class WindowResults:
    """Called with the events of windows of each micro-batch: publishes the results once, whatever is repeated."""

    sql: str
    arguments: Mapping[str, Any]
    options: Mapping[str, str]

    def __call__(self, frame: DataFrame, batch: int) -> None:
        results = _results(frame.sparkSession, frame, self.sql, self.arguments)
        results.write.format("anabranch").mode("append").options(**self.options).option("batch", str(batch)).save()
