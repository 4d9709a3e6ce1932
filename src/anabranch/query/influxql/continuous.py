"""Translates continuous queries into the SQL of pipelines, which hosts run.

InfluxDB runs the SELECT of a continuous query again for each interval. A pipeline keeps open windows, and writes the result of
each once. What depends on the difference is refused, and the error says what to use instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from anabranch.errors import InvalidSql
from anabranch.model.columns import RESERVED
from anabranch.query.dialects.windows import span
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.conditions import SparkConditionSql, split_condition
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.parser import parse_query
from anabranch.query.influxql.plan import SelectPlan, planned
from anabranch.query.influxql.prepare import prepared
from anabranch.query.influxql.spark_functions import SparkColumns, WindowSql, quoted
from anabranch.query.influxql.statement_text import POLICY, continuous_text, duration_text
from anabranch.query.influxql.statements import Database
from anabranch.query.influxql.times import ALL_TIMES, US

_COMMENT: Final = "-- "
_TIME: Final = "time"


def deployed_name(name: str, database: str) -> str:
    """The name of the deployed query that runs a continuous query."""
    return f"{database}.{name}"


def text_of(sql: str) -> tuple[ast.ContinuousQuery, str] | None:
    """The continuous query that a pipeline was translated from, and its text; None if it was not translated from one."""
    first = sql.partition("\n")[0]
    if not first.startswith(f"{_COMMENT}CREATE CONTINUOUS QUERY "):
        return None
    try:
        found = parse_query(first.removeprefix(_COMMENT))
    except InvalidSql:
        return None
    if len(found) != 1 or not isinstance(found[0], ast.ContinuousQuery):
        return None
    return found[0], first.removeprefix(_COMMENT)


def first_window(query: ast.ContinuousQuery, now: int) -> int:
    """The start of the window that `now` is in, in nanoseconds: the first one that is written."""
    interval, offset = _interval(query)
    return now - (now - offset) % interval


def pipeline_sql(query: ast.ContinuousQuery, database: Database, default: str) -> str:
    """The statements of the pipeline. Their first line is a comment with the continuous query. `default` is the database of
    measurements without one. Raises InvalidSql for what a pipeline's statement can't express."""
    _check_form(query, default)
    statements = [_statement(query, each, database, default) for each in _sources(query, database, default)]
    return f"{_COMMENT}{continuous_text(query, default)}\n" + ";\n\n".join(statements) + ";\n"


def _interval(query: ast.ContinuousQuery) -> tuple[int, int]:
    interval = query.select.grouping.interval
    assert interval is not None, "the parser asks for it"
    return interval, query.select.grouping.offset % interval


def _check_form(query: ast.ContinuousQuery, default: str) -> None:
    """Raise InvalidSql for clauses that a continuous query can't have, whatever its measurements."""
    select, (interval, _) = query.select, _interval(query)
    if query.every_ns is not None and query.every_ns < interval:
        raise InvalidSql(
            f"RESAMPLE EVERY {duration_text(query.every_ns)} would write the results of a window of {duration_text(interval)} several "
            "times, first before it ends, and a stream keeps them all; leave EVERY out, or write a pipeline with early results"
        )
    if select.fill.kind in ("previous", "linear"):
        raise InvalidSql(
            f"fill({select.fill.kind}) needs the values of other windows; use fill(none) here, and "
            f"fill({select.fill.kind}) in a SELECT from the result"
        )
    if select.fill.kind == "number" and max(query.every_ns or 0, query.for_ns or 0) > interval:
        raise InvalidSql(
            "RESAMPLE with fill() would write windows without events; use fill(none) here, and fill() in a SELECT from the "
            "result"
        )
    if select.ordered or select.paging != ast.Paging() or select.zone is not None:
        raise InvalidSql(
            "a continuous query can't have ORDER BY, LIMIT, OFFSET, SLIMIT, SOFFSET or tz(); leave them out"
        )
    times, _ = split_condition(select.where, 0)
    if times != ALL_TIMES:
        raise InvalidSql("a time in WHERE has no effect in a continuous query: leave it out")
    if select.into is not None and select.into.policy not in (None, POLICY):
        raise InvalidSql(
            f"retention policy not found: {select.into.database or default}.{select.into.policy}; there is {POLICY} only, so write into another "
            "database, whose streams have a retention of their own"
        )


def _sources(query: ast.ContinuousQuery, database: Database, default: str) -> Iterator[Measurement]:
    """The measurements that it reads. Raises InvalidSql if one of them isn't there."""
    select, into = query.select, query.select.into
    names = [each for each in select.sources if isinstance(each, ast.SourceName)]
    if len(names) < len(select.sources):
        raise InvalidSql(
            "a continuous query can't have a subquery; let a second continuous query read the measurement that a first one writes"
        )
    if len(names) > 1 and into is not None and into.name is not None:
        raise InvalidSql(
            "a continuous query writes one measurement for each that it reads: INTO database..:MEASUREMENT, or one continuous query "
            "for each"
        )
    for each in names:
        scope = each.database or default
        if isinstance(each.name, ast.RegularExpression):
            raise InvalidSql(
                "a continuous query can't read measurements by a pattern, because they are fixed when it is created; name them: "
                "FROM a, b"
            )
        found = database.measurement(scope, each.name)
        if found is None:
            raise InvalidSql(
                f"measurement not found: {scope}.{each.name}; write a point into it before you create the continuous query"
            )
        yield found


def _statement(query: ast.ContinuousQuery, measurement: Measurement, database: Database, default: str) -> str:
    into = query.select.into
    assert into is not None, "the parser asks for it"
    target = (into.database or default, into.name or measurement.name)
    if target == (measurement.stream.scope, measurement.stream.name):
        raise InvalidSql(
            f"the continuous query would write into {measurement.name}, which it reads; write into another measurement or another "
            "database"
        )
    if measurement.time == "_appended":
        raise InvalidSql(f"the stream '{measurement.stream}' has no event time, so it has no windows of event time")
    # Wildcards stand for the columns that exist now.
    source = ast.SourceName(measurement.name, measurement.stream.scope)
    select = prepared(replace(query.select, sources=(source,), into=None), database, default)
    plan = planned(select.select, 0)
    columns = SparkColumns(measurement.tags, measurement.fields, measurement.time)
    tags = select.select.grouping.names
    for tag in tags:
        if tag not in measurement.tags:
            raise InvalidSql(
                f"there is no tag '{tag}' in {measurement.name} yet: write a point with it before you create the continuous query"
            )
    _check_names([_TIME, *tags, *select.names])
    window = WindowSql(columns, query.select.fill)
    if plan.listed is not None:
        window.value(plan.listed)  # which says why not
    shown = [("window.start", _TIME), *((columns.shown_tag(tag), tag) for tag in tags)]
    for name, field in zip(select.names, select.select.fields, strict=True):
        shown.append((window.value(field.expression), name))
    lines = [
        f"CREATE STREAM {quoted(target[0])}.{quoted(target[1])} WITH ({_options(query)}) AS",
        "SELECT",
        ",\n".join(f"  {sql} AS {quoted(name)}" for sql, name in shown),
        f"FROM STREAM {quoted(measurement.stream.scope)}.{quoted(measurement.stream.name)}",
    ]
    if plan.condition is not None:
        lines.append(f"WHERE {SparkConditionSql(columns).condition(plan.condition)}")
    lines.append(f"GROUP BY {', '.join([_window(query, columns), *map(columns.shown_tag, tags)])}")
    lines.append(f"HAVING {' OR '.join(_present(plan, window, select.names))}")
    return "\n".join(lines)


def _present(plan: SelectPlan, window: WindowSql, names: Sequence[str]) -> Iterator[str]:
    """When a window has a result: a value of one of the columns, before any is filled in."""
    if plan.select.fill.kind != "number":
        return (f"{quoted(name)} IS NOT NULL" for name in names)
    calls = (leaf for leaf in plan.leaves if isinstance(leaf, ast.FunctionCall))
    return (f"{each} > 0" for each in dict.fromkeys(map(window.seen, calls)))


def _options(query: ast.ContinuousQuery) -> str:
    interval, _ = _interval(query)
    if query.for_ns is None:
        return f"time = {quoted(_TIME)}"
    # How long after its end a window is computed for the last time.
    delay = (query.for_ns - interval) // US
    return f"time = {quoted(_TIME)}, watermark = '{span(delay) if delay else '0 seconds'}'"


def _window(query: ast.ContinuousQuery, columns: SparkColumns) -> str:
    interval, offset = _interval(query)
    size = span(interval // US)
    moved = f", '{size}', '{span(offset // US)}'" if offset else ""
    return f"window({columns.time}, '{size}'{moved})"


def _check_names(names: list[str]) -> None:
    known: dict[str, str] = {}
    for name in names:
        if name.lower() in known:
            raise InvalidSql(
                f"the result would have two columns '{known[name.lower()]}' and '{name}'; name one of them otherwise with AS"
            )
        known[name.lower()] = name
        if name in RESERVED:
            raise InvalidSql(f"a column of the result can't be called '{name}'; name it otherwise with AS")
