"""The views over which a statement's query runs: of its sources as streams, each with its watermark, and of its tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window, functions

from anabranch.errors import InvalidSql, NotFound
from anabranch.model.columns import APPENDED
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.spark.options import to_json_option
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.shed_frame import shed_frame
from anabranch.spark.pipelines.statement import Statement
from anabranch.spark.quoting import quoted
from anabranch.spark.source.following import FollowedRun
from anabranch.spark.source.markers import ClockClosing, Idleness, MarkerOption, WindowClosing, is_event
from anabranch.spark.source.source import PipelineSource
from anabranch.spark.stores import FORMAT, stream_options
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["VALID_FROM", "VALID_UNTIL", "SourceReads", "statement_views", "with_versions"]


_CLOCK_STEP_MIN_US: Final = 1_000_000  # between two steps of a watermark that follows the clock


# View names depend only on a statement's position in its file, so pipelines use the same names. Without this lock, two
# that start in one session at the same time would read each other's streams.
_lock = threading.Lock()

VALID_FROM: Final = "_valid_from"
VALID_UNTIL: Final = "_valid_until"
_NEVER: Final = "9999-12-31 00:00:00"


@dataclass(frozen=True, slots=True)
class SourceReads:
    """How a run reads the sources of a statement. `starts` holds a cut (or place) as text for each source.

    A batch takes at most `events_max` events from each source that the pipeline does not write itself. With `ends` the
    run closes all windows at the end of each source: at the source's cut in `ends`, else at its tail. With `follow` its
    sources follow the batches of that run. With `await_standby`, the place of the query's checkpoint, they wait for a
    standby of their own."""

    starts: Mapping[str, str]
    events_max: int | None = None
    ends: Mapping[str, str] | None = None
    follow: FollowedRun | None = None
    await_standby: str | None = None


@contextmanager
def statement_views(spark: SparkSession, store: Store, step: Step, reads: SourceReads) -> Iterator[list[str]]:
    """Create the statement's views, and yield those of `tables` whose names Spark itself must resolve. The views are
    removed at the end; DataFrames made from them stay usable. Raises InvalidSql for missing streams."""
    with _lock:
        try:
            _create_source_views(spark, store, step, reads)
            yield _create_table_views(spark, store, step.statement)
        finally:
            for view in (*step.statement.sources, *step.statement.tables):
                spark.catalog.dropTempView(view)


def _create_source_views(spark: SparkSession, store: Store, step: Step, reads: SourceReads) -> None:
    statement = step.statement
    markers = _marker_options(store, step, reads)
    for view, name in statement.sources.items():
        try:
            info = store.streams.get(name)
        except NotFound as exc:
            raise InvalidSql(str(exc), line=statement.line) from exc
        frame = _stream(spark, store, step, reads, name, info.id, markers.get(name))
        time = APPENDED if statement.by_append_time else info.schema.time
        if time is not None:
            frame = frame.withWatermark(quoted(time), f"{step.delays_us[name] // 1000} milliseconds")
        if time is not None or name in markers:
            frame = frame.where(is_event())
        if statement.options.shed is not None:
            frame = shed_frame(frame, statement)
        frame.createOrReplaceTempView(view)


def _create_table_views(spark: SparkSession, store: Store, statement: Statement) -> list[str]:
    """Create views of the streams that are read as tables. Returns the views whose names Spark itself must resolve."""
    others = []
    for view, name in statement.tables.items():
        if store.streams.exists(name):
            info = store.streams.get(name)
            frame = spark.read.format(FORMAT).options(**stream_options(store, name, info.id)).load()
            if statement.has_versions(view):
                frame = with_versions(frame, info, statement.line)
            frame.createOrReplaceTempView(view)
        elif statement.has_versions(view):
            raise InvalidSql(f"stream '{name}' not found", line=statement.line)
        else:
            others.append(view)
    return others


def _stream(
    spark: SparkSession,
    store: Store,
    step: Step,
    reads: SourceReads,
    name: StreamName,
    ident: StreamId,
    markers: MarkerOption | None,
) -> DataFrame:
    shed, priority = step.statement.options.shed, step.statement.options.shed_priority
    pipeline = PipelineSource(markers, reads.follow, reads.await_standby, shed, priority is not None)
    options = {"start": reads.starts[str(name)], "pipelineSource": to_json_option(pipeline)}
    if (end := (reads.ends or {}).get(str(name))) is not None:
        options["end"] = end
    if reads.events_max is not None and name not in step.internal:
        options["maxEventsPerTrigger"] = str(reads.events_max)
    if len(step.statement.sources) > 1:
        # Spark polls its sources in turn, so one that waits for new events delays the others.
        options["pollMs"] = "50"
    return spark.readStream.format(FORMAT).options(**stream_options(store, name, ident), **options).load()


def _marker_options(store: Store, step: Step, reads: SourceReads) -> Mapping[StreamName, MarkerOption]:
    """The markers of each source that needs some."""
    statement = step.statement
    found = {name: store.streams.get(name) for name in statement.sources.values() if store.streams.exists(name)}
    by_append_time = statement.by_append_time
    timed = {name: info.id for name, info in found.items() if by_append_time or info.schema.time is not None}
    closing = None
    if reads.ends is not None and statement.options.mode != "complete":
        ranges = [(StreamCut.parse(reads.starts[str(name)]), reads.ends.get(str(name))) for name in timed]
        stops = tuple((start, None if end is None else StreamCut.parse(end)) for start, end in ranges)
        closing = WindowClosing(statement.horizon_us, stops, by_append_time)
    emit = None if statement.windowed is None else statement.windowed.emit
    early_us = None if emit is None else emit.early_us
    clock = _clock_closing(statement) if by_append_time and statement.options.mode != "complete" else None
    options = {}
    for name in found if early_us is not None else timed:
        idleness, others = None, tuple((stream, step.delays_us[each]) for each, stream in timed.items() if each != name)
        if statement.options.idle_us is not None and others:
            idleness = Idleness(statement.options.idle_us, others)
        option = MarkerOption(step.delays_us[name], closing, idleness, early_us, clock)
        if option.yields_any:
            options[name] = option
    return options


def _clock_closing(statement: Statement) -> ClockClosing:
    steps = [window.size_us // 10 if window.is_session else window.slide_us for window in statement.windows]
    # With several kinds of windows, or with ends that are close together, not each has a micro-batch of its own.
    return ClockClosing(statement.horizon_us, max(_CLOCK_STEP_MIN_US, *steps), statement.windows[0].start_us)


def with_versions(frame: DataFrame, info: StreamInfo, line: int) -> DataFrame:
    """The rows of a stream as versions of their keys. `VALID_FROM` is a row's event time; `VALID_UNTIL` (exclusive) is
    the event time of the next row of its key, else the end of the year 9999. Of rows of a key with the same time the
    last one appended is valid. Rows without a time are left out. Raises InvalidSql if the stream has no key or no event
    time."""
    key, time = info.schema.key, info.schema.time
    if key is None or time is None:
        raise InvalidSql(
            f"VERSIONS needs a stream with a key and an event time; '{info.name}' lacks one of them", line=line
        )
    column = functions.col(f"`{time}`")
    # A key is in one segment at a time; a later segment has a higher number.
    rows = Window.partitionBy(functions.col(f"`{key}`")).orderBy(column, "_segment", "_offset")
    until = functions.coalesce(functions.lead(column).over(rows), functions.lit(_NEVER).cast("timestamp"))
    return frame.where(column.isNotNull()).withColumn(VALID_FROM, column).withColumn(VALID_UNTIL, until)
