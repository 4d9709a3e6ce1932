"""One statement as a Structured Streaming query: its views, its result stream, and its start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql.types import StructType, TimestampNTZType, TimestampType

from anabranch.errors import AnabranchError, InvalidArgument, InvalidSql, NotFound, StreamExists
from anabranch.model.columns import RESERVED, TIME_TYPE
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.schema import StreamSchema
from anabranch.spark.checkpoint_place import CheckpointPlace
from anabranch.spark.late import WATERMARK_COLUMN
from anabranch.spark.late_commit import LateAccount
from anabranch.spark.pipeline_plan import Step
from anabranch.spark.pipeline_progress import SILENT
from anabranch.spark.statement import Statement, Window
from anabranch.spark.stores import place_options, places_of
from anabranch.spark.types import stored_columns
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.streams.holding import Held

__all__ = ["analyze", "create_streams", "drop_views", "explain", "late_account", "start"]

_FORMAT = "anabranch"
_WINDOW_END = re.compile(r"\bwindow\s*\.\s*end\s+(?:as\s+)?`?(\w+)`?", re.IGNORECASE)


# what the statement means


def analyze(
    spark: SparkSession, store: Store, step: Step, starts: Mapping[str, str], events_max: int | None = None
) -> DataFrame:
    """The statement as a DataFrame over its streams, each with its watermark. Leaves views behind: `drop_views`.

    `starts` holds cuts; a batch takes at most `events_max` events from each source that comes from outside.

    Raises InvalidSql with the line in the file for streams that are missing and for what Spark refuses.
    """
    statement = step.statement
    several = len(statement.sources) > 1
    for view, name in statement.sources.items():
        try:
            info = store.streams.get(name)
        except NotFound as exc:
            raise InvalidSql(str(exc), line=statement.line) from exc
        limit = None if name in step.internal else events_max
        frame = _stream(spark, store, name, info.id, starts[str(name)], events_max=limit, several=several)
        if info.schema.time is not None:
            frame = frame.withWatermark(info.schema.time, f"{step.delays_us[name] // 1000} milliseconds")
        frame.createOrReplaceTempView(view)
    query = statement.without_tables(_make_tables(spark, store, statement))
    # Spark counts lines from the query's start: with the lines before it, they are those of the file.
    text = "\n" * (statement.query_line - 1) + query
    try:
        frame = spark.sql(text)
        _check_streaming(spark, frame, statement.options.mode)
    except PySparkException as exc:
        raise _invalid(exc, statement) from exc
    if not frame.isStreaming:
        raise InvalidSql("the query's result is no stream", line=statement.query_line)
    # What the store adds to each row comes with `SELECT *`, and means nothing in another stream.
    frame = frame.drop(*RESERVED)
    columns = frame.columns
    for column in columns:
        if columns.count(column) > 1:
            raise InvalidSql(f"two columns are called '{column}'; name one of them with AS", line=statement.query_line)
    return frame


def drop_views(spark: SparkSession, step: Step) -> None:
    """Remove the statement's views; what was made of them goes on."""
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
) -> DataFrame:
    reader = spark.readStream.format(_FORMAT).options(**_options(store, name, ident)).option("start", start)
    if events_max is not None:
        reader = reader.option("maxEventsPerTrigger", str(events_max))
    if several:
        # Spark asks its sources in turn, so one that waits for events of its own holds up the others.
        reader = reader.option("pollMs", "50")
    return reader.load()


def _make_tables(spark: SparkSession, store: Store, statement: Statement) -> list[str]:
    """Views of the streams that are read as tables; returns the views whose names are not streams but Spark's own."""
    others = []
    for view, name in statement.tables.items():
        if store.streams.exists(name):
            options = _options(store, name, store.streams.get(name).id)
            spark.read.format(_FORMAT).options(**options).load().createOrReplaceTempView(view)
        else:
            others.append(view)
    return others


def _options(store: Store, name: StreamName, ident: StreamId) -> dict[str, str]:
    """What leads to a stream, whatever it is called later."""
    return {**place_options(places_of(store)), "stream": str(name), "streamId": str(ident)}


def _check_streaming(spark: SparkSession, frame: DataFrame, mode: str) -> None:
    """Have Spark refuse now what it would refuse when the query starts, before any stream is created."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    output_mode = modes.Complete() if mode == "complete" else modes.Append()
    plan = frame._jdf.queryExecution().analyzed()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, output_mode)


# its streams


def create_streams(
    store: Store,
    step: Step,
    frame: DataFrame,
    late: LateAccount | None,
    created: list[StreamName],
    held: list[Held] | None = None,
) -> None:
    """Create the result stream and, with an account, the one for late events where they are missing; `created` gains
    those that were. With `held` the one for late events is ephemeral: `held` gains the hold of it.

    Raises InvalidSql where a result can't be stored, or differs from the stream that is there.
    """
    statement = step.statement
    try:
        wanted = _result_schema(store, statement, frame.schema)
        if _create(store, statement.target, wanted, statement.options.segments):
            created.append(statement.target)
        if late is not None:
            columns, target = _late_schema(store, statement, late), statement.late_target
            if held is not None:
                _hold(store, target, columns, held)
            elif _create(store, target, columns, None):
                created.append(target)
    except StreamExists as exc:
        raise InvalidSql(
            f"'{exc.stream}' exists with other columns, key or time than this statement gives; delete it, "
            "name another target, or run: anabranch pipeline reset --drop-results",
            line=statement.line,
        ) from exc
    except InvalidArgument as exc:
        raise InvalidSql(f"'{statement.target}': {exc}", line=statement.line) from exc


def _hold(store: Store, name: StreamName, schema: StreamSchema, held: list[Held]) -> None:
    if not _present(store, name, schema):
        store.streams.create_scope(name.scope, exist_ok=True)
        held.append(store.streams.ephemeral(name, schema=schema.columns, key=schema.key, time=schema.time))
    elif store.streams.is_ephemeral(name):  # of a run that was killed
        held.append(store.streams.hold(name))


def _present(store: Store, name: StreamName, schema: StreamSchema) -> bool:
    """False where there is no such stream. Raises StreamExists for one with another schema."""
    present = store.streams.find(name)
    if present is None:
        return False
    if present.schema != schema:
        raise StreamExists(str(name))
    return True


def _create(store: Store, name: StreamName, schema: StreamSchema, segments: int | None) -> bool:
    if _present(store, name, schema):
        return False
    store.streams.create_scope(name.scope, exist_ok=True)
    store.streams.create(name, schema=schema.columns, key=schema.key, time=schema.time, scaling=segments or 1)
    return True


def _result_schema(store: Store, statement: Statement, schema: StructType) -> StreamSchema:
    """Columns as Spark gives them; key and time as said, else as the stream that is there, else as can be guessed."""
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
    """The first source's key, where the result still has a column of that name and type."""
    schema = store.streams.get(next(iter(statement.sources.values()))).schema
    if schema.key is None or schema.key not in columns.names:
        return None
    return schema.key if columns.field(schema.key).type == schema.columns.field(schema.key).type else None


def _default_time(store: Store, statement: Statement, schema: StructType) -> str | None:
    """The column that holds `window.end`, else a source's time under its own name, else the only timestamp."""
    times = [field.name for field in schema if isinstance(field.dataType, TimestampType | TimestampNTZType)]
    ends = [name for name in _WINDOW_END.findall(statement.query) if name in times]
    own = [store.streams.get(source).schema.time for source in statement.sources.values()]
    candidates = [*ends, *(name for name in own if name in times), *(times if len(times) == 1 else [])]
    return candidates[0] if candidates else None


def late_account(store: Store, step: Step, frame: DataFrame) -> LateAccount | None:
    """Which events Spark will drop because they come too late; None where it drops none."""
    statement = step.statement
    if not statement.options.late or statement.options.mode == "complete":
        return None
    windows = _dropping(frame, statement)
    sources = {name: store.streams.get(name).schema.time for name in statement.sources.values()}
    timed = {name: time for name, time in sources.items() if time is not None}
    return None if windows is None or not timed else LateAccount(statement.late_target, timed, windows)


def _dropping(frame: DataFrame, statement: Statement) -> tuple[Window, ...] | None:
    """The windows behind whose ends events are dropped, () where it is their own time that counts, or None.

    Found in Spark's plan, because a query's text does not say which of its joins are between streams.
    """
    nodes = list(_streaming_nodes(frame._jdf.queryExecution().analyzed()))
    if any(kind == "Join" and of_streams > 1 for kind, of_streams in nodes):
        return ()
    kinds = {kind for kind, _ in nodes}
    if "Aggregate" in kinds:
        return statement.windows
    return () if kinds & {"Distinct", "Deduplicate", "DeduplicateWithinWatermark"} else None


def _streaming_nodes(plan: Any) -> Iterator[tuple[str, int]]:
    """The kinds of the plan's nodes that work on streams, each with how many streams it works on."""
    children = plan.children()
    below = [children.apply(index) for index in range(children.length())]
    yield str(plan.getClass().getSimpleName()), sum(bool(child.isStreaming()) for child in below)
    for child in below:
        if child.isStreaming():
            yield from _streaming_nodes(child)


def _late_schema(store: Store, statement: Statement, account: LateAccount) -> StreamSchema:
    """Columns of the side stream: those of the sources that have an event time, then `_watermark`.

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
                    "say late = false",
                    line=statement.line,
                )
    fields[WATERMARK_COLUMN] = pa.field(WATERMARK_COLUMN, TIME_TYPE)
    times = set(account.sources.values())
    key, time = (next(iter(each)) if len(each) == 1 else None for each in (keys, times))
    return StreamSchema.typed(pa.schema(list(fields.values())), key, time)


# its start


def start(
    spark: SparkSession,
    store: Store,
    step: Step,
    frame: DataFrame,
    late: LateAccount | None,
    *,
    target: StreamId,
    checkpoint: CheckpointPlace,
    name: str,
    once: bool,
) -> StreamingQuery:
    """Start the query. `name` is the query's. Raises InvalidSql for what Spark refuses only now."""
    statement = step.statement
    # Spark looks for Python's data sources in the session of the calling thread, of which a new thread has none.
    spark._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    # Each query in a pool of its own, so that none queues behind another's jobs.
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    writer = (
        frame.writeStream.format(_FORMAT)
        .queryName(name)
        .outputMode(statement.options.mode)
        .options(**_options(store, statement.target, target))
        .option("checkpointLocation", checkpoint.for_spark)
        .option("checkpointUrl", checkpoint.text)
    )
    if late is not None:
        writer = writer.option("late", late.to_option())
    if once:
        writer = writer.trigger(availableNow=True)
    elif statement.options.trigger_us is not None:
        writer = writer.trigger(processingTime=f"{statement.options.trigger_us // 1000} milliseconds")
    try:
        return writer.start()
    except PySparkException as exc:
        raise _invalid(exc, statement) from exc


# errors in a sentence


def _invalid(exc: PySparkException, statement: Statement) -> InvalidSql:
    line = _line_of(exc)
    return InvalidSql(explain(exc), line=line or statement.query_line)


def _line_of(exc: PySparkException) -> int | None:
    """The line that Spark's message points at."""
    found = re.search(r"\(?line (\d+),? pos", str(exc))
    return int(found[1]) if found else None


def explain(exc: BaseException) -> str:
    """One sentence of what Spark, or our code inside of it, says in many lines."""
    if isinstance(exc, SILENT) and not isinstance(exc, Py4JJavaError):
        return "Spark's Java process has ended; run it again, and it goes on where it was"
    text = str(exc)
    # A Python error of the source or sink comes wrapped in Java's and Spark's; its own last line says it all.
    own = re.findall(r"^(?:anabranch\.errors\.)(\w+): (.+)$", text, re.MULTILINE)
    if own:
        return str(own[-1][1])
    if isinstance(exc, AnabranchError):
        return text
    text = re.sub(r"^\[[A-Z0-9_.]+\] ", "", text.strip())
    text = re.split(r"\s*(?:SQLSTATE:|;? line \d+,? pos|\n==|\n'|;\n|JVM stacktrace|Verify the spelling)", text)[0]
    if isinstance(exc, AnalysisException | ParseException):
        return _with_hint(" ".join(text.split()))
    return " ".join(text.splitlines()[0].split()) if text else type(exc).__name__


def _with_hint(text: str) -> str:
    if "without watermark" in text:
        return f"{text} (here: group by window(…) over the event time of its stream)"
    return text
