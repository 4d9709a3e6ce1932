"""Answers SHOW statements, by which clients of InfluxDB list databases, measurements, tags and fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from anabranch import limits
from anabranch.errors import InvalidSql
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.conditions import ConditionSql, split_condition
from anabranch.query.influxql.measurement import Measurement
from anabranch.query.influxql.patterns import matching
from anabranch.query.influxql.statements import Database, Rows, sources_of
from anabranch.query.sql_text import quoted

_POLICY: Final = ["autogen", "0s", "168h0m0s", 1, True]


def show(statement: ast.Show, database: Database, default: str, now: int) -> Iterator[Rows]:
    """The series of the answer. `now` is in nanoseconds. Raises InvalidSql."""
    scope = statement.database or default
    match statement.what:
        case "DATABASES":
            yield _table("databases", ["name"], [[name] for name in database.databases()])
        case "USERS":
            yield _table("", ["user", "admin"], [])
        case "RETENTION POLICIES":
            _check_database(database, scope)
            yield _table("", ["name", "duration", "shardGroupDuration", "replicaN", "default"], [_POLICY])
        case "SUBSCRIPTIONS":
            return
        case _:
            yield from _of_measurements(statement, database, scope, now)


def _of_measurements(statement: ast.Show, database: Database, scope: str, now: int) -> Iterator[Rows]:
    found = sources_of(database, scope, statement.sources) if statement.sources else database.measurements(scope)
    asked = _TagLookup(statement, database, now)
    measurements = [each for each in found if each.fields and asked.has_rows(each)]
    paging = statement.paging
    match statement.what:
        case "MEASUREMENTS":
            names = [each.name for each in measurements]
            if statement.keys is not None:
                names = _selected(statement, names)
            if names := paging.page(names):
                yield _table("measurements", ["name"], [[name] for name in names])
        case "SERIES":
            keys = sorted(key for each in measurements for key in asked.series(each))
            if keys := paging.page(keys):
                yield _table("", ["key"], [[key] for key in keys])
        case what:
            columns = {"TAG KEYS": ["tagKey"], "TAG VALUES": ["key", "value"]}.get(what, ["fieldKey", "fieldType"])
            for each in measurements:
                rows: Iterator[list[Any]]
                if what == "TAG KEYS":
                    rows = ([tag] for tag in each.tags)
                elif what == "TAG VALUES":
                    rows = asked.values(each, _selected(statement, each.tags))
                else:
                    rows = ([name, kind] for name, kind in each.fields.items())
                if values := paging.page(rows):
                    yield _table(each.name, columns, values)


def _selected(statement: ast.Show, names: Sequence[str]) -> list[str]:
    """The names that WITH KEY or WITH MEASUREMENT selects."""
    assert statement.keys is not None, "the statement has it"
    operator, wanted = statement.keys
    first = wanted[0]
    if isinstance(first, ast.RegularExpression):
        found = matching(first.pattern, names)
        return found if operator == "=~" else [name for name in names if name not in found]
    return [name for name in names if (name in wanted) == (operator == "=")]


def _table(name: str, columns: Sequence[str], values: Sequence[list[Any]]) -> Rows:
    return Rows(name, None, columns, values, timed=False)


def _check_database(database: Database, name: str) -> None:
    if name not in database.databases():
        raise InvalidSql(f"database not found: {name}")


class _TagLookup:
    """Asks the streams for tags in the rows that the condition of a statement selects."""

    def __init__(self, statement: ast.Show, database: Database, now: int) -> None:
        self._database = database
        self._times, self._condition = split_condition(statement.where, now)
        self._all = statement.where is None

    def has_rows(self, measurement: Measurement) -> bool:
        """Whether the condition selects any."""
        return self._all or bool(self._rows(measurement, ["1"], most=1))

    def values(self, measurement: Measurement, tags: Sequence[str]) -> Iterator[list[str]]:
        """Each tag with each of its values, in order."""
        for tag in tags:
            for (value,) in self._rows(measurement, [f"DISTINCT {quoted(tag)}"]):
                if value:
                    yield [tag, value]

    def series(self, measurement: Measurement) -> Iterator[str]:
        """`cpu,host=a`: the measurement with the tags of each series."""
        columns = [quoted(tag) for tag in measurement.tags]
        if not columns:
            yield measurement.name
            return
        for row in self._rows(measurement, [f"DISTINCT {columns[0]}", *columns[1:]]):
            pairs = [
                f",{_escaped(tag)}={_escaped(value)}" for tag, value in zip(measurement.tags, row, strict=True) if value
            ]
            yield _escaped(measurement.name) + "".join(pairs)

    def _rows(self, measurement: Measurement, columns: list[str], most: int = limits.INFLUXQL_ROWS_MAX) -> list[Any]:
        conditions = [measurement.in_time(self._times)]
        if self._condition is not None:
            conditions.append(ConditionSql(measurement).condition(self._condition))
        where = " AND ".join(each for each in conditions if each) or "true"
        sql = f"SELECT {', '.join(columns)} FROM {measurement.table} WHERE {where} ORDER BY ALL LIMIT {most}"
        batches = self._database.run(sql, measurement)
        return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def _escaped(text: str) -> str:
    for each in (",", "=", " "):
        text = text.replace(each, f"\\{each}")
    return text
