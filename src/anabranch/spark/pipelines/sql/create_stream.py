"""The statement CREATE STREAM … AS SELECT …."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from anabranch.model.columns import APPENDED
from anabranch.spark.pipelines.cursor import Cursor
from anabranch.spark.pipelines.declared_functions.declared import DeclaredFunction
from anabranch.spark.pipelines.estimated import Replacement, estimates
from anabranch.spark.pipelines.sql.full_joins import keys_not_null
from anabranch.spark.pipelines.sql.options import with_options
from anabranch.spark.pipelines.sql.outputs import OutputClauses, outputs
from anabranch.spark.pipelines.sql.relations import Relations, relations
from anabranch.spark.pipelines.sql.time_windows import intervals_us, time_windows
from anabranch.spark.pipelines.sql_tokens import replaced
from anabranch.spark.pipelines.statement import Statement, StatementOptions
from anabranch.spark.pipelines.windows.clauses import Relation, WindowedQuery, windowed_query
from anabranch.spark.pipelines.windows.drift_clauses import drift_query
from anabranch.spark.pipelines.windows.spans import StatementWindow

__all__ = ["created_stream"]


def created_stream(cursor: Cursor, number: int, functions: Mapping[str, DeclaredFunction]) -> Statement:
    """The statement, which has this number in its file; `functions` are those of the file. Raises InvalidSql."""
    line = cursor.tokens[0].line
    if not (cursor.take("CREATE") and cursor.take("STREAM")):
        cursor.fail("expected CREATE STREAM scope.name [WITH (…)] [INTO …] AS SELECT …", at=0)
    target = cursor.stream_name("CREATE STREAM")
    options = with_options(cursor) if cursor.take("WITH") else StatementOptions()
    after_options = cursor.at
    into = outputs(cursor, options)
    if not cursor.take("AS"):
        cursor.fail(f"expected AS and a query after CREATE STREAM {target.scope}.{target.name}")
    named = [target, *into.targets]
    for name in named:
        if named.count(name) > 1:
            cursor.fail(f"the statement writes to '{name}' twice", at=0)
    if cursor.peek() is None:
        cursor.fail("expected a query after AS", at=cursor.at - 1)
    begin = cursor.at
    reads = relations(cursor, number)
    windows = time_windows(cursor, begin)
    if not reads.sources:
        cursor.fail(f"the query reads no stream; name one with FROM STREAM scope.name, to feed {target}", at=begin)
    _check_append_times(cursor, begin, windows, reads)
    estimated = () if options.shed is None else estimates(cursor, begin)
    if estimated and len(reads.found) != 1:
        cursor.fail("a statement with shed reads one stream: join its results in a second statement", at=begin)
    not_null = keys_not_null(cursor, begin) if sum(each.is_stream for each in reads.found) > 1 else []
    windowed = drift_query(cursor, begin, reads.found) or windowed_query(cursor, begin, reads.found, windows)
    handler = _handler(cursor, options, functions)
    _check_windowed(cursor, windowed, options, into)
    called = {token.text for token in cursor.tokens}
    return Statement(
        target=target,
        options=options,
        query=_with_views(cursor, begin, reads.found, [*estimated, *not_null]),
        sources=reads.sources,
        tables=reads.tables,
        windows=windows,
        intervals_us=intervals_us(cursor, begin),
        line=line,
        query_line=cursor.tokens[begin].line,
        arguments=_arguments(cursor, after_options),
        windowed=windowed,
        reads=sum(each.is_stream for each in reads.found),
        sides=into.sides,
        late_into=into.late,
        feedback=into.feedback,
        functions=tuple(each for each in functions.values() if each is handler or each.spark_name in called),
        handler=handler,
    )


def _check_windowed(
    cursor: Cursor, windowed: WindowedQuery | None, options: StatementOptions, into: OutputClauses
) -> None:
    if options.start_query is not None and (windowed is None or not windowed.detects_drift):
        cursor.fail("start_query requires DETECT DRIFT", at=0)
    if windowed is not None and options.handler is not None:
        cursor.fail(
            "a statement with count_window, EMIT or DETECT can't have a handler: handle its results in a second statement",
            at=0,
        )
    if windowed is not None and (into.sides or into.feedback):
        cursor.fail(
            "a statement with count_window, EMIT or DETECT can't have side outputs: divide its results in a second statement",
            at=0,
        )


def _check_append_times(cursor: Cursor, begin: int, windows: Sequence[StatementWindow], reads: Relations) -> None:
    """Windows over append times have a watermark of these times, so everything in the statement has to go by them."""
    of_append_times = [window for window in windows if window.column == APPENDED]
    if of_append_times and len(of_append_times) < len(windows):
        cursor.fail(f"windows over {APPENDED} and over another column require a statement each", at=begin)
    if of_append_times and sum(each.is_stream for each in reads.found) > 1:
        cursor.fail(f"windows over {APPENDED} are of one stream: join their results in a second statement", at=begin)


def _handler(
    cursor: Cursor, options: StatementOptions, functions: Mapping[str, DeclaredFunction]
) -> DeclaredFunction | None:
    if options.handler is None:
        return None
    found = functions.get(options.handler.lower())
    if found is None or not found.of_batches:
        cursor.fail(
            f"handler = {options.handler}: expected a function that the file declares with RETURNS TABLE (…)", at=0
        )
    if options.mode != "append":
        cursor.fail("a statement with a handler can't have mode = complete", at=0)
    return found


def _arguments(cursor: Cursor, begin: int) -> Mapping[str, Any]:
    names = (cursor.parameter_at(index) for index in range(begin, len(cursor.tokens)))
    return MappingProxyType({name: cursor.values[name] for name in names if name is not None})


def _with_views(cursor: Cursor, begin: int, found: Sequence[Relation], estimated: Iterable[Replacement]) -> str:
    """The query's text with views in the places of streams, and with estimates; comments and line breaks are kept."""
    tokens = cursor.tokens
    changes = [(each.first, each.last, each.text) for each in found]
    return replaced(
        cursor.text,
        (
            (tokens[first].start, tokens[first].start if last < first else tokens[last].end + 1, text)
            for first, last, text in (*changes, *estimated)
        ),
        tokens[begin].start,
        tokens[-1].end + 1,
    )
