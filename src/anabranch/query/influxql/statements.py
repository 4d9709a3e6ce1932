"""Answers the statements of a query, over the streams that its caller may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.query.influxql.fields import column_names, expanded
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.patterns import matching
from anabranch.query.influxql.plan import MeasurementSql, SelectPlan, planned, used_fields
from anabranch.query.influxql.series import Row, series_of, too_many_rows
from anabranch.query.influxql.syntax import (
    FunctionCall,
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
    plan = planned(_without_time(written), now)
    if statement.descending:
        measurements.reverse()
    series = (each for measurement in measurements for each in _series(plan, measurement, database))
    paging = statement.paging
    stop = None if paging.series_limit is None else paging.series_offset + paging.series_limit
    yield from islice(series, paging.series_offset, stop)


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
    for tags, rows in series_of(plan, measurement, _rows(database.run(text, measurement))):
        paged = _paged(plan, rows)
        first = next(paged, None)
        if first is not None:
            named = dict(zip([str(tag) for tag in plan.select.grouping.tags], tags, strict=True))
            yield Rows(measurement.name, named or None, columns, _again(first, paged))


def _shown(plan: SelectPlan) -> list[SelectedField]:
    """The fields, and those that `top` and `bottom` show beside."""
    found: list[SelectedField] = []
    for field in plan.select.fields:
        found.append(field)
        if isinstance(field.expression, FunctionCall) and field.expression.name in ("top", "bottom"):
            found += [SelectedField(each) for each in field.expression.arguments[1:-1]]
    return found


def _paged(plan: SelectPlan, rows: Iterable[Row]) -> Iterator[Row]:
    paging = plan.select.paging
    stop = None if paging.limit is None else paging.offset + paging.limit
    return islice(rows, paging.offset, stop)


def _again(first: Row, others: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from others


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Sequence[Any]]:
    count = 0
    for batch in batches:
        count += batch.num_rows
        if count > limits.INFLUXQL_ROWS_MAX:
            raise too_many_rows()
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
