"""Answers SELECT, over the streams that its caller may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.columns import common_types
from anabranch.query.influxql.derived import DerivedRow, DerivedRows
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.plan import SelectPlan, planned, used_fields
from anabranch.query.influxql.prepare import PreparedSelect, prepared
from anabranch.query.influxql.select_sql import SelectSql
from anabranch.query.influxql.series import Found, Row, series_of, too_many_rows
from anabranch.query.influxql.statements import Database, Rows
from anabranch.query.influxql.times import TimeRange

_Readable = Measurement | DerivedRows


def select(statement: ast.Select, database: Database, default: str, now: int) -> Iterator[Rows]:
    """The series of a SELECT, to be taken one after the other. `now` is in nanoseconds. Raises InvalidSql."""
    top = prepared(statement, database, default)
    plan = planned(top.select, now)
    columns = ["time", *top.names]
    for relation in _relations(top, plan, database, now):
        series = _series_rows(plan, relation, database, columns)
        yield from series if top.nested else _paged_series(series, plan.select.paging)


def _series_rows(plan: SelectPlan, relation: _Readable, database: Database, columns: Sequence[str]) -> Iterator[Rows]:
    for tags, rows in _series(plan, relation, database):
        values = list(rows)
        if values:
            named = dict(zip(plan.select.grouping.names, tags, strict=True))
            yield Rows(relation.name, named or None, columns, values)


def _series(plan: SelectPlan, relation: _Readable, database: Database) -> Iterator[Found]:
    """The series of a relation. Windows without values are rows too, of each series."""
    if not used_fields(plan, relation):
        return
    sql, count = SelectSql(plan, relation).text(), 0
    batches = relation.run(sql) if isinstance(relation, DerivedRows) else database.run(sql, relation)
    for tags, rows in series_of(plan, relation, _rows(batches)):
        values = list(rows)
        count += len(values)
        if count > limits.INFLUXQL_ROWS_MAX:
            raise too_many_rows()
        yield tags, values


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[Any]]:
    count = 0
    for batch in batches:
        count += batch.num_rows
        if count > limits.INFLUXQL_ROWS_MAX:
            raise too_many_rows()
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _paged_series(series: Iterable[Rows], paging: ast.Paging) -> Iterable[Rows]:
    """The series that SLIMIT and SOFFSET select, wherever a series stands in the result."""
    if not paging.pages_series:
        return series
    found = list(series)
    kept = _kept([rows.tags or {} for rows in found], paging)
    return [rows for rows in found if tuple((rows.tags or {}).items()) in kept]


def _kept(series: Iterable[dict[str, str]], paging: ast.Paging) -> set[tuple[tuple[str, str], ...]]:
    """The series that SLIMIT and SOFFSET select. They count in the order of the keys of InfluxDB's index."""
    counted = sorted({tuple(tags.items()) for tags in series}, key=_index_key)
    start, limit = paging.series_offset, paging.series_limit
    return set(counted[start : None if limit is None else start + limit])


def _index_key(series: tuple[tuple[str, str], ...]) -> str:
    """The sort key of a series: the names of the tags that have a value, then the values."""
    tags = {name: value for name, value in sorted(series) if value}
    return "\0".join([*tags, *tags.values()])


@dataclass(frozen=True, slots=True)
class _Outer:
    """What a subquery takes from the statement that reads its results."""

    times: TimeRange
    grouping: ast.Grouping
    descending: bool
    paging: ast.Paging


class _OrderedRow(NamedTuple):
    """A row of a subquery. Rows are ordered by `group` (the tags by which the outermost statement groups), then by
    window, then by tags."""

    group: tuple[str, ...]
    window: int
    tags: tuple[str, ...]
    row: Row


def _relations(source: PreparedSelect, plan: SelectPlan, database: Database, now: int) -> list[_Readable]:
    """What the statement reads, in the order of the names."""
    if not source.nested:
        plain: list[_Readable] = [each for each in source.sources if isinstance(each, Measurement)]
        return plain[::-1] if plan.select.descending else plain
    reads: list[tuple[bool | None, TimeRange]] = [(None, plan.read)]
    if plan.mixed:
        reads = [(False, plan.times), (True, plan.read)]
    found: dict[str, list[DerivedRow]] = {}
    inner = [each for each in source.sources if isinstance(each, PreparedSelect)]
    for each in inner:
        for beyond, times in reads:
            outer = _Outer(times, plan.select.grouping, plan.select.descending, plan.select.paging)
            for name, rows in _results(each, outer, database, now).items():
                found.setdefault(name, []).extend(_derived(each, outer, rows, beyond))
    count = sum(map(len, found.values()))
    if count > limits.INFLUXQL_ROWS_MAX:
        raise too_many_rows()
    fields = common_types({**dict.fromkeys(each.tags, "string"), **each.fields} for each in inner)
    tags = sorted({*plan.select.grouping.names, *(tag for each in inner for tag in each.tags)})
    names = sorted(found, reverse=plan.select.descending)
    return [DerivedRows(name, tags, fields, found[name], by_time=len(inner) > 1) for name in names]


def _derived(
    source: PreparedSelect, outer: _Outer, rows: Iterable[_OrderedRow], beyond: bool | None
) -> Iterator[DerivedRow]:
    names = _grouped_by(source, outer)
    for each in rows:
        tags = dict(zip(names, each.tags, strict=True))
        at, *values = each.row
        own = {tag: tags[tag] for tag in source.tags}
        yield DerivedRow(at, tags, own | dict(zip(source.names, values, strict=True)), beyond)


def _grouped_by(source: PreparedSelect, outer: _Outer) -> list[str]:
    return sorted({*source.tags, *outer.grouping.names})


def _results(source: PreparedSelect, outer: _Outer, database: Database, now: int) -> dict[str, list[_OrderedRow]]:
    """The rows of a subquery by the names of the measurements, in InfluxDB's order."""
    statement, inherited = _within(source, outer)
    plan = planned(statement, now, bounds=outer.times, inherited=inherited)
    paging = plan.select.paging
    # Rows of series that the outer statement does not distinguish are merged; LIMIT and OFFSET then apply to each run of
    # rows with the same tags.
    mixed = set(plan.select.grouping.names) != set(outer.grouping.names)
    if mixed:
        plan = replace(plan, select=replace(plan.select, paging=ast.Paging()))
    found: dict[str, list[_OrderedRow]] = {}
    for relation in _relations(source, replace(plan, select=replace(plan.select, paging=paging)), database, now):
        rows = found.setdefault(relation.name, [])
        for tags, values in _series(plan, relation, database):
            # InfluxDB reads one event more of each series than requested, before it counts the mixed events.
            most = None if paging.limit is None or not mixed or not plan.raw else paging.offset + paging.limit + 1
            rows += _ordered(plan, outer, tags, islice(values, most))
    for name, rows in found.items():
        if mixed:
            rows.sort(key=lambda each: each.tags)  # always ascending, whatever the order of the times
            rows.sort(key=lambda each: each[:2], reverse=plan.select.descending)
            found[name] = [row for _, run in groupby(rows, key=lambda each: each.tags) for row in paging.page(run)]
        if not source.nested and paging.pages_series:
            names = outer.grouping.names
            kept = _kept((dict(zip(names, each.group, strict=True)) for each in found[name]), paging)
            found[name] = [each for each in found[name] if tuple(zip(names, each.group, strict=True)) in kept]
    return found


def _within(source: PreparedSelect, outer: _Outer) -> tuple[ast.Select, bool]:
    """The statement with the settings that it inherits from the outer one, and whether it inherits the interval. Raises
    InvalidSql."""
    statement, own = source.select, source.select.grouping
    if statement.ordered and statement.descending != outer.descending:
        raise InvalidSql("subqueries must be ordered in the same direction as the query itself")
    inherited = own.interval is None and outer.grouping.interval is not None
    grouping = outer.grouping if inherited else own
    calls = any(isinstance(part, ast.FunctionCall) for field in statement.fields for part in ast.walk(field.expression))
    paging, above = statement.paging, outer.paging
    if above.pages_series:
        limit = (paging.series_limit or 0) + (above.series_limit or 0)
        paging = replace(paging, series_limit=limit or None, series_offset=paging.series_offset + above.series_offset)
    return (
        replace(
            statement,
            grouping=replace(grouping, tags=tuple(_grouped_by(source, outer))),
            fill=ast.Fill("none") if calls and statement.fill.kind == "null" else statement.fill,
            descending=outer.descending,
            paging=paging,
        ),
        inherited,
    )


def _ordered(plan: SelectPlan, outer: _Outer, tags: tuple[str, ...], rows: Iterable[Row]) -> Iterator[_OrderedRow]:
    named = dict(zip(plan.select.grouping.names, tags, strict=True))
    group = tuple(named[tag] for tag in outer.grouping.names)
    for row in rows:
        window = row[0] if plan.raw else plan.windows.start_of(row[0]) if plan.windows else 0
        yield _OrderedRow(group, window, tags, row)
