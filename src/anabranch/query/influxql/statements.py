"""Answers the statements of a query, over the streams that its caller may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.query.influxql.fields import check_arithmetic, column_names, expanded
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.patterns import matching
from anabranch.query.influxql.plan import SelectPlan, planned, used_fields
from anabranch.query.influxql.select_sql import MeasurementSql
from anabranch.query.influxql.series import Row, series_of, too_many_rows
from anabranch.query.influxql.syntax import (
    FunctionCall,
    Paging,
    Reference,
    RegularExpression,
    Select,
    SelectedField,
    SourceName,
)


class Database(Protocol):
    """The streams that a caller may read."""

    def databases(self) -> Sequence[str]:
        """Their scopes, in the order of their names."""
        ...

    def measurements(self, database: str) -> Sequence[Measurement]:
        """Those of a scope, in the order of their names."""
        ...

    def measurement(self, database: str, name: str) -> Measurement | None:
        """One of them, or None."""
        ...

    def run(self, sql: str, measurement: Measurement) -> Iterable[pa.RecordBatch]:
        """The result of a query over a stream. Raises InvalidSql, QueryLimitExceeded."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """A series of a result: its measurement, the tags that it is grouped by, the columns, and the rows, to be taken once.
    `timed`: the first column is a time in nanoseconds."""

    name: str
    tags: dict[str, str] | None
    columns: Sequence[str]
    values: Iterable[Row]
    timed: bool = True


def sources_of(database: Database, default: str, sources: Sequence[SourceName]) -> list[Measurement]:
    """The measurements that a statement names, each once, in the order of their names. One that there is not is left
    out."""
    found: dict[str, Measurement] = {}
    for source in sources:
        scope = source.database or default
        if isinstance(source.name, RegularExpression):
            known = {each.name: each for each in database.measurements(scope)}
            named = [known[name] for name in matching(source.name.pattern, list(known))]
        else:
            one = database.measurement(scope, source.name)
            named = [] if one is None else [one]
        found.update((str(each.stream), each) for each in named)
    return sorted(found.values(), key=lambda each: (each.name, each.stream))


def select(statement: Select, database: Database, default: str, now: int) -> Iterator[Rows]:
    """The series of a SELECT, to be taken one after the other. `now` is in nanoseconds. Raises InvalidSql."""
    measurements = sources_of(database, default, statement.sources)
    written = expanded(statement, measurements)
    for field in written.fields:
        check_arithmetic(field.expression, measurements)
    plan = planned(_without_time(written), now)
    if statement.descending:
        measurements.reverse()
    for measurement in measurements:
        yield from _paged_series(_series(plan, measurement, database), statement.paging)


def _paged_series(series: Iterable[Rows], paging: Paging) -> Iterable[Rows]:
    """The series that SLIMIT and SOFFSET select. They count in the order of the keys of InfluxDB's index, wherever a series
    stands in the result."""
    start, limit = paging.series_offset, paging.series_limit
    if limit is None and not start:
        return series
    found = list(series)
    counted = sorted(found, key=_index_key)
    kept = {id(each) for each in counted[start : None if limit is None else start + limit]}
    return [each for each in found if id(each) in kept]


def _index_key(rows: Rows) -> str:
    """The names of the tags that have a value, then the values."""
    tags = {name: value for name, value in sorted((rows.tags or {}).items()) if value}
    return "\0".join([*tags, *tags.values()])


def _without_time(statement: Select) -> Select:
    """The first column is the time, so it need not be selected."""
    fields = tuple(
        field
        for field in statement.fields
        if not (isinstance(field.expression, Reference) and field.expression.name.lower() == "time")
    )
    return replace(statement, fields=fields)


def _series(plan: SelectPlan, measurement: Measurement, database: Database) -> Iterator[Rows]:
    if not used_fields(plan, measurement):
        return
    sql = MeasurementSql(plan, measurement)
    if plan.listed is not None:
        text = sql.listed(plan.listed)
    else:
        text = sql.events() if plan.raw else sql.aggregates()
    columns = ["time", *column_names(_shown(plan))]
    count = 0
    for tags, rows in series_of(plan, measurement, _rows(database.run(text, measurement))):
        values = list(rows)
        count += len(values)  # windows without values are rows too, of each series
        if count > limits.INFLUXQL_ROWS_MAX:
            raise too_many_rows()
        if values:
            named = dict(zip([str(tag) for tag in plan.select.grouping.tags], tags, strict=True))
            yield Rows(measurement.name, named or None, columns, values)


def _shown(plan: SelectPlan) -> list[SelectedField]:
    """The fields, and those that `top` and `bottom` show beside."""
    found: list[SelectedField] = []
    for field in plan.select.fields:
        found.append(field)
        if isinstance(field.expression, FunctionCall) and field.expression.name in ("top", "bottom"):
            found += [SelectedField(each) for each in field.expression.arguments[1:-1]]
    return found


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[Any]]:
    count = 0
    for batch in batches:
        count += batch.num_rows
        if count > limits.INFLUXQL_ROWS_MAX:
            raise too_many_rows()
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
