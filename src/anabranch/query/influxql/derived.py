"""The results of subqueries as rows that another SELECT reads. The rows are few enough for a DuckDB in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.core.sql_error import sql_problem
from anabranch.errors import InvalidSql
from anabranch.errors.optional import optional
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.times import US, TimeRange
from anabranch.query.messages import over_memory

with optional("a query", "query"):
    import duckdb

_ARROW: Final[Mapping[ast.FieldType, pa.DataType]] = {
    "float": pa.float64(),
    "integer": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
_BATCH_ROWS: Final = 65_536


@cache
def _shared_database() -> duckdb.DuckDBPyConnection:
    """A database without tables, shared because opening one takes longer than most queries. Each query has its own cursor, and
    reads its rows from a view that only this cursor sees."""
    memory = f"{limits.INFLUXQL_SUBQUERY_MEMORY_BYTES}B"
    database = duckdb.connect(config={"threads": 1, "memory_limit": memory, "temp_directory": ""})
    database.execute("SET enable_external_access = false")
    return database


class DerivedRow(NamedTuple):
    """A row of a result: its time in nanoseconds, the values of tags and of fields by their names. `beyond`: it counts for
    the calls that need more than the time range, and for no others; None: for all."""

    time: int
    tags: Mapping[str, str]
    values: Mapping[str, Any]
    beyond: bool | None


class DerivedRows:
    """Rows as a relation. `tags` can be grouped by; `fields` can be selected, among them those tags that the subqueries group
    by. The rows are in the order in which they are given, or `by_time`, for they come from several subqueries."""

    table = "derived"
    row_time = "t"

    def __init__(
        self,
        name: str,
        tags: Sequence[str],
        fields: Mapping[str, ast.FieldType],
        rows: Sequence[DerivedRow],
        *,
        by_time: bool,
    ) -> None:
        self.name = name
        self.tags = tuple(tags)
        self.fields = fields
        self._by_time = by_time
        self._tag_columns = {tag: f"t{number}" for number, tag in enumerate(tags)}
        self._field_columns = {field: f"f{number}" for number, field in enumerate(fields)}
        self._rows = _as_table(self._tag_columns, self._field_columns, fields, rows)

    def column(self, field: str) -> str:
        """A field in SQL."""
        return self._field_columns[field]

    def tag(self, name: str) -> str:
        """A tag in SQL, the empty text if there is none."""
        return self._tag_columns.get(name, "''")

    def shown_tag(self, name: str) -> str:
        """A tag is a field too, unless only the outer statement groups by it."""
        return self._field_columns.get(name, "NULL")

    def order(self, *, descending: bool) -> list[str]:
        """By time if the rows come from several subqueries, else as given."""
        return [f"t {'DESC' if descending else 'ASC'}", "r"] if self._by_time else ["r"]

    def in_time(self, times: TimeRange) -> str | None:
        """The subqueries have read the time range. A window that begins before it counts."""
        del times
        return None

    def of_window_beyond(self, beyond: bool, times: TimeRange) -> str:
        """By what the row was read for."""
        del times
        return f"b IS NOT DISTINCT FROM {str(beyond).lower()}"

    def run(self, sql: str) -> Iterator[pa.RecordBatch]:
        """The result of SQL over the rows. Raises InvalidSql, QueryLimitExceeded."""
        with _shared_database().cursor() as database:
            database.register(self.table, self._rows)
            try:
                relation: Any = database.sql(sql)
                # Older releases of DuckDB have this method under another name.
                reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
                yield from reader(_BATCH_ROWS)
            except duckdb.OutOfMemoryException as exc:
                raise over_memory(str(exc)) from exc
            except duckdb.Error as exc:
                raise InvalidSql(sql_problem(str(exc)).message) from exc


def _as_table(
    tags: Mapping[str, str], fields: Mapping[str, str], types: Mapping[str, ast.FieldType], rows: Sequence[DerivedRow]
) -> pa.Table:
    columns = {
        "t": pa.array([row.time // US for row in rows], pa.int64()),
        "r": pa.array(range(len(rows)), pa.int64()),
        "b": pa.array([row.beyond for row in rows], pa.bool_()),
    }
    for tag, column in tags.items():
        columns[column] = pa.array([row.tags.get(tag, "") for row in rows], pa.string())
    for field, column in fields.items():
        columns[column] = _column([row.values.get(field) for row in rows], types[field], field)
    return pa.table(columns)


def _column(values: list[Any], kind: ast.FieldType, field: str) -> pa.Array:
    try:
        if kind == "integer":
            values = [int(value) if isinstance(value, float) else value for value in values]
        elif kind == "float":  # Arrow refuses integers that a double rounds
            values = [float(value) if isinstance(value, int) else value for value in values]
        return pa.array(values, _ARROW[kind])
    except (pa.ArrowException, OverflowError) as exc:
        raise InvalidSql(f"a value of '{field}' in a subquery is no {kind}: {exc}") from exc
