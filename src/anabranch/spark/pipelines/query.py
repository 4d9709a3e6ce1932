"""One statement as a Structured Streaming query: its views, its result stream, and its start."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import IntegerType, LongType, StructType, TimestampNTZType, TimestampType

from anabranch.catalog.state.codec import stream_id_text
from anabranch.errors import InvalidArgument, InvalidSql, NotFound, StreamExists
from anabranch.model.columns import RESERVED, TIME_TYPE
from anabranch.model.cut import StreamCut
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.spark.checkpoint_folder import CheckpointFolder
from anabranch.spark.explain import explain
from anabranch.spark.pipelines.functions.declared import without_spark_names
from anabranch.spark.pipelines.functions.install import handled
from anabranch.spark.pipelines.late_commit import LateEventsSpec
from anabranch.spark.pipelines.late_events import WATERMARK_COLUMN
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.publish import BatchHandler, publish
from anabranch.spark.pipelines.shed_frame import refuse_unestimated, shed_frame, shed_options
from anabranch.spark.pipelines.side_outputs import HOPS, OUTPUTS_COLUMN, feedback_mask, outputs_sql
from anabranch.spark.pipelines.spark_functions import provide_functions
from anabranch.spark.pipelines.statement import Statement
from anabranch.spark.pipelines.versions import VALID_FROM, VALID_UNTIL, with_versions
from anabranch.spark.pipelines.windows.clauses import WindowedQuery
from anabranch.spark.pipelines.windows.spans import StatementWindow
from anabranch.spark.pipelines.windows.stage import WindowResults, events_of_windows, results_of_nothing
from anabranch.spark.source.following import FollowedRun
from anabranch.spark.source.markers import Idleness, MarkerOption, WindowClosing, is_event
from anabranch.spark.stores import address_options, addresses_of
from anabranch.spark.types import stored_columns
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.store.engine_api import Held

__all__ = ["AnalyzedQuery", "analyze", "check_streams", "create_streams", "drop_views", "late_account", "start"]

Made: TypeAlias = Collection[str]  # ids of streams, as `stream_id_text` writes them

_FORMAT = "anabranch"
_WINDOW_END = re.compile(r"\b(?:count_)?window\s*\.\s*end\s+(?:as\s+)?`?(\w+)`?", re.IGNORECASE)


# analysis


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A statement as a streaming DataFrame. `columns` are those of its results. They are the DataFrame's own, unless the
    statement is `windowed`: then they are those of a batch query over each of its micro-batches."""

    frame: DataFrame
    columns: StructType
    windowed: bool = False


def analyze(
    spark: SparkSession,
    store: Store,
    step: Step,
    starts: Mapping[str, str],
    events_max: int | None = None,
    ends: Mapping[str, str] | None = None,
    follow: FollowedRun | None = None,
    await_standby: str | None = None,
) -> AnalyzedQuery:
    """The statement over its streams, each with its watermark. Leaves views behind; call `drop_views`.

    `starts` holds a cut (or place) as text for each source. A batch takes at most `events_max` events from each source
    that the pipeline does not write itself. With `ends` the run closes all windows at the end of its sources: those cuts,
    or where none is given the tail. With `follow` its sources follow the batches of that run. With `await_standby`, the folder of the query's checkpoint,
    they wait for a standby of their own.

    Raises InvalidSql, with the line in the file, for missing streams and for anything that Spark refuses.
    """
    statement = step.statement
    several = len(statement.sources) > 1
    markers = _marker_options(store, step, starts, ends)
    for view, name in statement.sources.items():
        try:
            info = store.streams.get(name)
        except NotFound as exc:
            raise InvalidSql(str(exc), line=statement.line) from exc
        limit = None if name in step.internal else events_max
        options = {"end": (ends or {}).get(str(name)), "markers": markers.get(name), **shed_options(statement)}
        if follow is not None:
            options["follow"] = follow.to_option()
        options["awaitStandby"] = await_standby
        given = {option: text for option, text in options.items() if text is not None}
        frame = _stream(spark, store, name, info.id, starts[str(name)], events_max=limit, several=several, given=given)
        if info.schema.time is not None:
            frame = frame.withWatermark(
                f"`{info.schema.time.replace('`', '``')}`", f"{step.delays_us[name] // 1000} milliseconds"
            )
        if info.schema.time is not None or name in markers:
            frame = frame.where(is_event())
        if statement.options.shed is not None:
            frame = shed_frame(frame, statement)
        frame.createOrReplaceTempView(view)
    tables = _make_tables(spark, store, statement)
    try:
        if statement.windowed is not None:
            return _windowed(spark, store, statement, statement.windowed)
        frame = _sql(spark, statement, statement.without_tables(tables))
        _check_streaming(spark, frame, statement.options.mode)
    except PySparkException as exc:
        raise _invalid(exc, statement) from exc
    if statement.options.shed is not None:
        refuse_unestimated(frame, statement)
    if not frame.isStreaming:
        raise InvalidSql("the query's result is not a stream", line=statement.query_line)
    if statement.handler is not None:
        frame = handled(frame, statement.handler)
    # `SELECT *` includes the columns that the store adds, which are meaningless in another stream.
    frame = frame.drop(*RESERVED, VALID_FROM, VALID_UNTIL)
    _check_names(statement, frame)
    if not statement.outputs:
        return AnalyzedQuery(frame, frame.schema)
    if statement.feedback:
        _check_hops(store, statement, frame.schema)
    return AnalyzedQuery(_with_outputs(spark, statement, frame), frame.schema)


def _with_outputs(spark: SparkSession, statement: Statement, frame: DataFrame) -> DataFrame:
    """The result with the column that says which of the statement's streams each row goes to."""
    if taken := [name for name in frame.columns if name.startswith("_output")]:
        raise InvalidSql(f"a statement with side outputs has no column '{taken[0]}'", line=statement.query_line)
    view = f"anabranch_result_of_line_{statement.line}"
    frame.createOrReplaceTempView(view)
    sql = outputs_sql(statement.outputs, view)
    try:
        divided = spark.sql(sql, dict(statement.arguments)) if statement.arguments else spark.sql(sql)
    except PySparkException as exc:
        raise InvalidSql(without_spark_names(explain(exc)), line=_line_of(exc) or statement.outputs[0].line) from exc
    finally:
        spark.catalog.dropTempView(view)
    if not statement.feedback:
        return divided
    hops = functions.col(HOPS)
    leads_back = functions.col(OUTPUTS_COLUMN).bitwiseAND(functions.lit(feedback_mask(statement.outputs))) != 0
    more = functions.coalesce(hops, functions.lit(0)) + functions.lit(1)
    return divided.withColumn(HOPS, functions.when(leads_back, more).otherwise(hops).cast(frame.schema[HOPS].dataType))


def _check_hops(store: Store, statement: Statement, columns: StructType) -> None:
    """Check that the hops of events that are fed back are counted on. Raises InvalidSql."""
    line = statement.feedback[0].line
    if not any(HOPS in store.streams.get(name).schema.columns.names for name in statement.sources.values()):
        raise InvalidSql(
            f"FEEDBACK counts hops in a column of its events, which no source of the statement has: {HOPS} BIGINT",
            line=line,
        )
    if HOPS not in columns.names or not isinstance(columns[HOPS].dataType, IntegerType | LongType):
        raise InvalidSql(
            f"the result of a statement with FEEDBACK has the column {HOPS}, an integer: select {HOPS}, or with GROUP BY "
            f"max({HOPS}) AS {HOPS}",
            line=statement.query_line,
        )


def _windowed(spark: SparkSession, store: Store, statement: Statement, windowed: WindowedQuery) -> AnalyzedQuery:
    if statement.options.mode != "append":
        raise InvalidSql("a statement with count_window, EMIT or DETECT has no mode = complete", line=statement.line)
    if statement.options.start_query is not None:
        try:
            store.queries.get(statement.options.start_query)
        except NotFound as exc:
            raise InvalidSql(f"start_query: {exc}", line=statement.line) from exc
    events = _sql(spark, statement, windowed.events)
    (source,) = statement.sources.values()
    try:
        frame = events_of_windows(events, windowed, store.streams.get(source))
    except InvalidSql as exc:
        raise InvalidSql(str(exc), line=statement.query_line) from exc
    provide_functions(spark, windowed.results)
    results = results_of_nothing(spark, frame, _padded(statement, windowed.results), statement.arguments)
    _check_names(statement, results)
    return AnalyzedQuery(frame, results.schema, windowed=True)


def _sql(spark: SparkSession, statement: Statement, query: str) -> DataFrame:
    text = _padded(statement, query)
    provide_functions(spark, text)
    return spark.sql(text, dict(statement.arguments)) if statement.arguments else spark.sql(text)


def _padded(statement: Statement, query: str) -> str:
    """Spark counts lines from the query's start. Leading line breaks make these the line numbers of the file."""
    return "\n" * (statement.query_line - 1) + query


def _check_names(statement: Statement, frame: DataFrame) -> None:
    columns = frame.columns
    for column in columns:
        if columns.count(column) > 1:
            raise InvalidSql(f"two columns are called '{column}'; name one of them with AS", line=statement.query_line)


def drop_views(spark: SparkSession, step: Step) -> None:
    """Remove the statement's views; DataFrames made from them stay usable."""
    for view in (*step.statement.sources, *step.statement.tables):
        spark.catalog.dropTempView(view)


def _stream(
    spark: SparkSession,
    store: Store,
    name: StreamName,
    ident: StreamId,
    start: str,
    *,
    events_max: int | None,
    several: bool,
    given: Mapping[str, str],
) -> DataFrame:
    reader = (
        spark.readStream.format(_FORMAT).options(**_options(store, name, ident)).option("start", start).options(**given)
    )
    if events_max is not None:
        reader = reader.option("maxEventsPerTrigger", str(events_max))
    if several:
        # Spark polls its sources in turn, so one that waits for new events delays the others.
        reader = reader.option("pollMs", "50")
    return reader.load()


def _marker_options(
    store: Store, step: Step, starts: Mapping[str, str], ends: Mapping[str, str] | None
) -> Mapping[StreamName, str]:
    """The option `markers` of each source that needs it."""
    statement = step.statement
    found = {name: store.streams.get(name) for name in statement.sources.values() if store.streams.exists(name)}
    timed = {name: info.id for name, info in found.items() if info.schema.time is not None}
    closing = None
    if ends is not None and statement.options.mode != "complete":
        ranges = [(StreamCut.parse(starts[str(name)]), ends.get(str(name))) for name in timed]
        stops = tuple((start, None if end is None else StreamCut.parse(end)) for start, end in ranges)
        closing = WindowClosing(statement.horizon_us, stops)
    emit = None if statement.windowed is None else statement.windowed.emit
    early_us = None if emit is None else emit.early_us
    options = {}
    for name in found if early_us is not None else timed:
        idleness, others = None, tuple((stream, step.delays_us[each]) for each, stream in timed.items() if each != name)
        if statement.options.idle_us is not None and others:
            idleness = Idleness(statement.options.idle_us, others)
        if closing is not None or idleness is not None or early_us is not None:
            options[name] = MarkerOption(step.delays_us[name], closing, idleness, early_us).to_option()
    return options


def _make_tables(spark: SparkSession, store: Store, statement: Statement) -> list[str]:
    """Create views of the streams that are read as tables. Returns the views whose names Spark itself must resolve."""
    others = []
    for view, name in statement.tables.items():
        if store.streams.exists(name):
            info = store.streams.get(name)
            frame = spark.read.format(_FORMAT).options(**_options(store, name, info.id)).load()
            if statement.has_versions(view):
                frame = with_versions(frame, info, statement.line)
            frame.createOrReplaceTempView(view)
        elif statement.has_versions(view):
            raise InvalidSql(f"stream '{name}' not found", line=statement.line)
        else:
            others.append(view)
    return others


def _options(store: Store, name: StreamName, ident: StreamId) -> dict[str, str]:
    """The options that lead to a stream, even after it is renamed."""
    return {**address_options(addresses_of(store)), "stream": str(name), "streamId": str(ident)}


def _check_streaming(spark: SparkSession, frame: DataFrame, mode: str) -> None:
    """Run the checks that Spark makes when a query starts, so that they fail before any stream is created."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    output_mode = modes.Complete() if mode == "complete" else modes.Append()
    plan = frame._jdf.queryExecution().analyzed()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, output_mode)


# streams of results and late events


def check_streams(
    store: Store, step: Step, columns: StructType, late: LateEventsSpec | None, row: str, made: Made
) -> None:
    """Check what `create_streams` would check, and create nothing. Raises InvalidSql."""
    with _as_invalid_sql(store, step, row, made):
        wanted = _result_schema(store, step.statement, columns)
        for target in step.statement.results:
            _present(store, target, wanted)
        _check_feedback(store, step.statement, wanted)
        if late is not None:
            _present(store, step.statement.late_target, _late_schema(store, step.statement, late))


def create_streams(
    store: Store,
    step: Step,
    columns: StructType,
    late: LateEventsSpec | None,
    created: list[StreamId],
    row: str,
    made: Made,
    held: list[Held] | None = None,
) -> None:
    """Create the streams of results and, with `late`, the stream for late events, if they are missing. The ids of streams
    that it creates are added to `created`.

    With `held` the stream for late events is ephemeral, and its hold is added to `held`. `row` is the pipeline's name,
    `made` holds the ids of the streams that it created before.

    Raises InvalidSql if a result can't be stored, or differs from the existing stream.
    """
    statement = step.statement
    with _as_invalid_sql(store, step, row, made):
        wanted = _result_schema(store, statement, columns)
        _check_feedback(store, statement, wanted)
        for each in statement.results:
            _create(store, each, wanted, statement.options.segments, created)
        if late is not None:
            schema, target = _late_schema(store, statement, late), statement.late_target
            if held is not None:
                _hold(store, target, schema, held, created)
            else:
                _create(store, target, schema, None, created)


@contextmanager
def _as_invalid_sql(store: Store, step: Step, row: str, made: Made) -> Iterator[None]:
    statement = step.statement
    try:
        yield
    except StreamExists as exc:
        present = store.streams.find(exc.stream)
        own = present is not None and stream_id_text(present.id) in made
        what = f"anabranch pipeline reset {row} --drop-results" if own else f"anabranch stream delete {exc.stream}"
        raise InvalidSql(
            f"'{exc.stream}' exists with other columns, key or time than this statement gives; name another target, or if "
            f"nobody needs {'the earlier results' if own else 'what is in it'}, run: {what}",
            line=statement.line,
        ) from exc
    except InvalidArgument as exc:
        raise InvalidSql(f"'{statement.target}': {exc}", line=statement.line) from exc


def _check_feedback(store: Store, statement: Statement, schema: StreamSchema) -> None:
    """Check that the streams that lead back are there, and have the columns of the result. Raises InvalidSql."""
    for each in statement.feedback:
        try:
            has = store.streams.get(each.target).schema.columns
        except NotFound as exc:
            raise InvalidSql(f"FEEDBACK leads to a stream that exists: {exc}", line=each.line) from exc
        for column in schema.columns:
            if column.name not in has.names or has.field(column.name).type != column.type:
                raise InvalidSql(
                    f"'{each.target}' has no column {column.name} of type {column.type}, as the result has",
                    line=each.line,
                )


def _hold(store: Store, name: StreamName, schema: StreamSchema, held: list[Held], created: list[StreamId]) -> None:
    if not _present(store, name, schema):
        store.scopes.create(name.scope, exist_ok=True)
        held.append(store.ephemeral.create(name, schema=schema.columns, key=schema.key, time=schema.time))
        created.append(held[-1].id)
    elif store.ephemeral.is_ephemeral(name):  # left by a run that was killed
        held.append(store.ephemeral.hold(name))


def _present(store: Store, name: StreamName, schema: StreamSchema) -> bool:
    """True if the stream exists. Raises StreamExists if it has another schema."""
    present = store.streams.find(name)
    if present is None:
        return False
    if present.schema != schema:
        raise StreamExists(str(name))
    return True


def _create(
    store: Store, name: StreamName, schema: StreamSchema, segments: int | None, created: list[StreamId]
) -> None:
    if not _present(store, name, schema):
        store.scopes.create(name.scope, exist_ok=True)
        info = store.streams.create(
            name, schema=schema.columns, key=schema.key, time=schema.time, scaling=segments or 1
        )
        created.append(info.id)


def _result_schema(store: Store, statement: Statement, schema: StructType) -> StreamSchema:
    """The result stream's schema: Spark's columns; key and time from options, else the existing stream, else inferred.

    If the stream exists and the options name neither key nor time, both come from the stream.
    """
    columns = stored_columns(schema)
    options = statement.options
    present = store.streams.get(statement.target).schema if store.streams.exists(statement.target) else None
    if present is not None and options.key is None and options.time is None:
        return StreamSchema.typed(columns, _if_in(present.key, columns), _if_in(present.time, columns))
    key = options.key or _default_key(store, statement, columns)
    time = options.time or _default_time(store, statement, schema)
    return StreamSchema.typed(columns, key, time)


def _if_in(name: str | None, columns: pa.Schema) -> str | None:
    return name if name in columns.names else None


def _default_key(store: Store, statement: Statement, columns: pa.Schema) -> str | None:
    """The first source's key, if the result has a column of that name and type."""
    schema = store.streams.get(next(iter(statement.sources.values()))).schema
    if schema.key is None or schema.key not in columns.names:
        return None
    return schema.key if columns.field(schema.key).type == schema.columns.field(schema.key).type else None


def _default_time(store: Store, statement: Statement, schema: StructType) -> str | None:
    """The column that holds `window.end`, else a source's time column under its own name, else the only timestamp."""
    times = [field.name for field in schema if isinstance(field.dataType, TimestampType | TimestampNTZType)]
    ends = [name for name in _WINDOW_END.findall(statement.query) if name in times]
    own = [store.streams.get(source).schema.time for source in statement.sources.values()]
    candidates = [*ends, *(name for name in own if name in times), *(times if len(times) == 1 else [])]
    return candidates[0] if candidates else None


def late_account(store: Store, step: Step, frame: DataFrame) -> LateEventsSpec | None:
    """A description of the events that Spark will drop as late; None if it drops none or late events are not kept."""
    statement = step.statement
    if not statement.options.late or statement.options.mode == "complete":
        return None
    emit = None if statement.windowed is None else statement.windowed.emit
    # A window of a number of events takes them as they come.
    windows = _dropping(frame, statement) if emit is None else statement.windows or None
    sources = [store.streams.get(name) for name in statement.sources.values()]
    timed = {each.id: each.schema.time for each in sources if each.schema.time is not None}
    return (
        None
        if windows is None or not timed
        else LateEventsSpec(statement.late_target, timed, windows, None if emit is None else emit.late_us)
    )


def _dropping(frame: DataFrame, statement: Statement) -> tuple[StatementWindow, ...] | None:
    """The windows whose ends decide which events are dropped; () if the event's own time decides; None if none are.

    Derived from Spark's plan, because a query's text does not say which of its joins are between streams.
    """
    nodes = list(_streaming_nodes(frame._jdf.queryExecution().analyzed()))
    if any(kind == "Join" and of_streams > 1 for kind, of_streams in nodes):
        return ()
    kinds = {kind for kind, _ in nodes}
    if "Aggregate" in kinds:
        return statement.windows
    return () if kinds & {"Distinct", "Deduplicate", "DeduplicateWithinWatermark"} else None


def _streaming_nodes(plan: Any) -> Iterator[tuple[str, int]]:
    """The class names of the plan's streaming nodes, each with the number of its inputs that are streams."""
    children = plan.children()
    below = [children.apply(index) for index in range(children.length())]
    yield str(plan.getClass().getSimpleName()), sum(bool(child.isStreaming()) for child in below)
    for child in below:
        if child.isStreaming():
            yield from _streaming_nodes(child)


def _late_schema(store: Store, statement: Statement, account: LateEventsSpec) -> StreamSchema:
    """The schema of the stream for late events: the columns of the sources with an event time, then `_watermark`.

    Sources that share a column must agree on its type. Raises InvalidSql.
    """
    fields: dict[str, pa.Field] = {}
    keys = set()
    for name in account.sources:
        schema = store.streams.get(name).schema
        keys.add(schema.key)
        for field in schema.columns:
            if fields.setdefault(field.name, field).type != field.type:
                raise InvalidSql(
                    f"the sources' columns '{field.name}' differ in type, so late events of both can't share a stream; "
                    "set late = false",
                    line=statement.line,
                )
    fields[WATERMARK_COLUMN] = pa.field(WATERMARK_COLUMN, TIME_TYPE)
    times = set(account.sources.values())
    key, time = (next(iter(each)) if len(each) == 1 else None for each in (keys, times))
    return StreamSchema.typed(pa.schema(list(fields.values())), key, time)


# starting a query


def start(
    spark: SparkSession,
    store: Store,
    step: Step,
    frame: DataFrame,
    late: LateEventsSpec | None,
    *,
    target: StreamId,
    sides: tuple[StreamId, ...],
    checkpoint: CheckpointFolder,
    name: str,
    once: bool,
    trigger_us: int | None,
    run: tuple[str, str],
    follow: Callable[[BatchHandler], BatchHandler] | None = None,
) -> StreamingQuery:
    """Start the query under `name`, in the run of the pipeline that has this name and token. `trigger_us` is the time
    between micro-batches of a statement without one of its own. In a run that follows another, `follow` makes what
    publishes a batch into what decides whether to, and the sources pause between batches. Raises InvalidSql for anything
    that Spark refuses only at this point."""
    statement = step.statement
    # Spark looks up Python data sources in the calling thread's active session, and a new thread has none.
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    # Each query gets its own pool, so that none queues behind another's jobs.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    options = {
        **_options(store, statement.target, target),
        "checkpointLocation": checkpoint.for_spark,
        "checkpointUrl": checkpoint.text,
        "pipelineRun": json.dumps(run),
    }
    if late is not None:
        options["late"] = late.to_option()
    if sides:
        options["outputs"] = json.dumps([str(each) for each in sides])
    writer = frame.writeStream.queryName(name).outputMode(statement.options.mode).options(**options)
    handler: BatchHandler | None = None
    if statement.windowed is not None:
        results = _padded(statement, statement.windowed.results)
        retrain = statement.options.start_query
        found = None if retrain is None else lambda: _start_query(store, retrain)
        handler = WindowResults(results, statement.arguments, options, found)
    elif follow is not None:
        handler = partial(publish, options=options, replace=statement.options.mode == "complete")
    if handler is None:
        writer = writer.format(_FORMAT)
    else:
        writer = writer.foreachBatch(handler if follow is None else follow(handler))
    if once:
        writer = writer.trigger(availableNow=True)
    elif (
        follow is None
        and (pause_us := trigger_us if statement.options.trigger_us is None else statement.options.trigger_us)
        is not None
    ):
        writer = writer.trigger(processingTime=f"{pause_us // 1000} milliseconds")
    try:
        return writer.start()
    except PySparkException as exc:
        raise _invalid(exc, statement) from exc


def _start_query(store: Store, name: str) -> None:
    """Raises QueryNotFound if it was deleted, which ends the statement."""
    store.queries.start(name)


# error messages


def _invalid(exc: PySparkException, statement: Statement) -> InvalidSql:
    line = _line_of(exc)
    return InvalidSql(without_spark_names(explain(exc)), line=line or statement.query_line)


def _line_of(exc: PySparkException) -> int | None:
    """The line that Spark's message names."""
    found = re.search(r"\(?line (\d+),? pos", str(exc))
    return int(found[1]) if found else None
