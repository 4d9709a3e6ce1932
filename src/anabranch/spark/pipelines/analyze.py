"""A statement as a streaming DataFrame, with everything checked that Spark checks when a query starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import IntegerType, LongType, StructType

from anabranch.errors import InvalidSql, NotFound
from anabranch.model.columns import RESERVED
from anabranch.sketches.bloom import AGGREGATE
from anabranch.spark.explain import explain
from anabranch.spark.pipelines.declared_functions.declared import without_spark_names
from anabranch.spark.pipelines.declared_functions.install import handled
from anabranch.spark.pipelines.plan import Step
from anabranch.spark.pipelines.shed_frame import refuse_unestimated
from anabranch.spark.pipelines.side_outputs import HOPS, OUTPUTS_COLUMN, feedback_mask, outputs_sql
from anabranch.spark.pipelines.source_views import VALID_FROM, VALID_UNTIL, SourceReads, statement_views
from anabranch.spark.pipelines.statement import Statement
from anabranch.spark.pipelines.windows.clauses import WindowedQuery
from anabranch.spark.pipelines.windows.stage import events_of_windows, results_of_nothing, run_sql
from anabranch.store import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["AnalyzedQuery", "analyze", "invalid_sql", "padded", "provide_functions"]


@dataclass(frozen=True, slots=True)
class AnalyzedQuery:
    """A statement as a streaming DataFrame. `columns` are those of its results. They are the DataFrame's own, unless the
    statement is `windowed`: then they are those of a batch query over each of its micro-batches."""

    frame: DataFrame
    columns: StructType
    windowed: bool = False


def analyze(spark: SparkSession, store: Store, step: Step, reads: SourceReads) -> AnalyzedQuery:
    """The statement over its streams, each with its watermark.

    Raises InvalidSql, with the line in the file, for missing streams and for anything that Spark refuses.
    """
    with statement_views(spark, store, step, reads) as others:
        return _over_views(spark, store, step.statement, others)


def _over_views(spark: SparkSession, store: Store, statement: Statement, others: Sequence[str]) -> AnalyzedQuery:
    """The statement over its views, of which Spark itself must resolve the names of `others`."""
    try:
        if statement.windowed is not None:
            return _windowed(spark, store, statement, statement.windowed)
        frame = _sql(spark, statement, statement.without_tables(others))
        _check_streaming(spark, frame, statement.options.mode)
    except PySparkException as exc:
        raise invalid_sql(exc, statement.query_line) from exc
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
        raise InvalidSql(f"a statement with side outputs can't have a column '{taken[0]}'", line=statement.query_line)
    view = f"anabranch_result_of_line_{statement.line}"
    frame.createOrReplaceTempView(view)
    sql = outputs_sql(statement.outputs, view)
    try:
        divided = run_sql(spark, sql, statement.arguments)
    except PySparkException as exc:
        raise invalid_sql(exc, statement.outputs[0].line) from exc
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
        raise InvalidSql(
            "a statement with count_window, EMIT or DETECT can't have mode = complete", line=statement.line
        )
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
    results = results_of_nothing(spark, frame, padded(statement, windowed.results), statement.arguments)
    _check_names(statement, results)
    return AnalyzedQuery(frame, results.schema, windowed=True)


def _sql(spark: SparkSession, statement: Statement, query: str) -> DataFrame:
    text = padded(statement, query)
    provide_functions(spark, text)
    return run_sql(spark, text, statement.arguments)


def _check_names(statement: Statement, frame: DataFrame) -> None:
    columns = frame.columns
    for column in columns:
        if columns.count(column) > 1:
            raise InvalidSql(f"two columns are called '{column}'; name one of them with AS", line=statement.query_line)


def _check_streaming(spark: SparkSession, frame: DataFrame, mode: str) -> None:
    """Run the checks that Spark makes when a query starts, so that they fail before any stream is created."""
    jvm: Any = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    output_mode = modes.Complete() if mode == "complete" else modes.Append()
    plan = frame._jdf.queryExecution().analyzed()
    jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, output_mode)


def padded(statement: Statement, query: str) -> str:
    """Spark counts lines from the query's start. Leading line breaks make these the line numbers of the file."""
    return "\n" * (statement.query_line - 1) + query


def invalid_sql(exc: PySparkException, line: int) -> InvalidSql:
    """The error that Spark reports, with the line that its message names, else this one."""
    found = re.search(r"\(?line (\d+),? pos", str(exc))
    return InvalidSql(without_spark_names(explain(exc)), line=int(found[1]) if found else line)


def provide_functions(spark: SparkSession, sql: str) -> None:
    """Make Spark's aggregate function for Bloom filters known to the session, if this SQL uses it. Spark filters joins with it,
    and has it in a registry of its own (`FunctionRegistry.internal`). Nothing else makes filters in SQL nearly as fast: see
    `./dev bench queries_sketches`. Raises InvalidSql for a Spark without it."""
    if AGGREGATE not in sql:
        return
    session: Any = spark
    try:
        analysis = session._jvm.org.apache.spark.sql.catalyst.analysis
        registry = getattr(analysis, "FunctionRegistry$").__getattr__("MODULE$").internal()
        builder = registry.lookupFunctionBuilder(
            session._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(AGGREGATE)
        )
        own = session._jsparkSession.sessionState().functionRegistry()
        own.createOrReplaceTempFunction(AGGREGATE, builder.get(), "built-in")
    except Py4JError as exc:
        raise InvalidSql(f"bloom_sketch_agg needs Spark 4.3; this is {spark.version}") from exc
