"""Reading the catalog on PostgreSQL."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from anabranch.catalog import rows
from anabranch.catalog.postgres.pipeline import PipelineConnection
from anabranch.catalog.reading import SqlReading
from anabranch.model.append import LogState


class PostgresReading(SqlReading):
    """`catalog.port.Reading` over a connection inside a transaction: REPEATABLE READ and read-only, unless it is the
    base of a `PostgresWriting`."""

    NO_LIMIT = None

    def __init__(self, database: PipelineConnection) -> None:
        self._database = database

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        return self._database.run_statements([(name, values)])[0].rows

    def _run_queries(self, queries: Sequence[tuple[str, Any]]) -> list[list[rows.Row]]:
        return [answer.rows for answer in self._database.run_statements(queries)]

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        return next(iter(self._rows(name, values)), None)

    def _array(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def _exported(self, table: str, row: rows.Row) -> rows.Row:
        if table not in ("writers", "producers"):
            return row
        *rest, numbers, seen_at = row
        return (*rest, struct.pack(f"<{len(numbers)}q", *numbers), seen_at)

    def matches_log(self, state: LogState) -> bool:
        return bool(self._rows("matches_log", rows.log_values(state)))

    def verify_database(self) -> list[str]:
        broken = [
            f"a row of {table} refers to {missing} {key}, which is missing"
            for table, key, missing in self._rows("broken_references")
        ]
        broken += [f"index {name} is not valid" for (name,) in self._rows("invalid_indexes")]
        return broken + self._empty_keys()
