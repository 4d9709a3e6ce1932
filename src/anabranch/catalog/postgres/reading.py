"""Reading the catalog on PostgreSQL."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

import psycopg

from anabranch.catalog import rows
from anabranch.catalog.postgres.connection import SQL, Connection
from anabranch.catalog.reading import SqlReading

_PIPELINES: Final = psycopg.Pipeline.is_supported()


class PostgresReading(SqlReading):
    """`catalog.port.Reading` over a connection inside a transaction: REPEATABLE READ and read-only, unless it is the
    base of a `PostgresWriting`."""

    NO_LIMIT = None

    def __init__(self, database: Connection) -> None:
        self._database = database

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        cursor = self._database.execute(SQL[name], values or None, binary=True)
        return cursor.fetchall() if cursor.description else []

    def _several(self, queries: Sequence[tuple[str, Any]]) -> list[list[rows.Row]]:
        return [cursor.fetchall() if cursor.description else [] for cursor in self._flight(queries)]

    def _flight(self, queries: Sequence[tuple[str, Any]]) -> list[psycopg.Cursor[rows.Row]]:
        """Run several statements in one round trip. Raises what the first of them raises that fails."""
        # Their results are there when the pipeline is left. A libpq before 14 knows none, and asks one after the other.
        with self._database.pipeline() if _PIPELINES and len(queries) > 1 else nullcontext():
            return [self._database.execute(SQL[name], values or None, binary=True) for name, values in queries]

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        return self._database.execute(SQL[name], values or None, binary=True).fetchone()

    def _array(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def _exported(self, table: str, row: rows.Row) -> rows.Row:
        if table != "writers":
            return row
        *rest, recent, seen_at = row
        return (*rest, struct.pack(f"<{len(recent)}q", *recent), seen_at)

    def verify_database(self) -> list[str]:
        broken = [
            f"a row of {table} refers to {missing} {key}, which is missing"
            for table, key, missing in self._rows("broken_references")
        ]
        return broken + [f"index {name} is not valid" for (name,) in self._rows("invalid_indexes")]
