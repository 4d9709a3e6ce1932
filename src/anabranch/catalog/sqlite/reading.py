"""Reading the catalog on SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from anabranch.catalog import rows
from anabranch.catalog.digests import row_digest
from anabranch.catalog.queries import load
from anabranch.catalog.reading import SqlReading
from anabranch.catalog.tables import TABLES
from anabranch.errors import CorruptCatalog
from anabranch.model.append import LogState, Progress
from anabranch.model.ids import LogId, WriterId

SQL = load("anabranch.catalog.sqlite")

# The indexes of the boolean columns, for which SQLite has no type.
_FLAGS = {table.name: {at for at, column in enumerate(table.columns) if column.kind == "bool"} for table in TABLES}


class SqliteReading(SqlReading):
    """`catalog.port.Reading` over a connection inside a transaction."""

    NO_LIMIT = -1

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        try:
            return self._database.execute(SQL[name], values).fetchall()
        except UnicodeDecodeError as exc:
            raise _not_text(name, exc) from exc

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        try:
            return self._database.execute(SQL[name], values).fetchone()
        except UnicodeDecodeError as exc:
            raise _not_text(name, exc) from exc

    def _array(self, values: Sequence[Any]) -> str:
        return json.dumps(values)

    def progress_in(self, logs: Sequence[LogId], writer: WriterId) -> dict[LogId, Progress]:
        """A writer's progress in each of the logs where it has any."""
        if len(logs) == 1:
            progress = self.progress(logs[0], writer)
            return {} if progress is None else {logs[0]: progress}
        found = self._rows("progress_in", (writer, self._array(logs)))
        return {LogId(row[0]): rows.progress(row) for row in found}

    def _exported(self, table: str, row: rows.Row) -> rows.Row:
        flags = _FLAGS[table]
        return tuple(bool(value) if at in flags else value for at, value in enumerate(row)) if flags else row

    def matches_log(self, state: LogState) -> bool:
        row = self._row("log", (state.id,))
        return row is not None and row[-1] == row_digest(rows.log_row(state))

    def verify_database(self) -> list[str]:
        found = [row[0] for row in self._database.execute("pragma integrity_check")]
        broken = [str(text) for text in found if text != "ok"]
        dangling = self._database.execute("pragma foreign_key_check")
        broken += [f"table {row[0]} refers to a missing row of {row[2]}" for row in dangling]
        return broken + self._empty_keys()


def _not_text(statement: str, exc: UnicodeDecodeError) -> CorruptCatalog:
    return CorruptCatalog(
        f"a row read by the catalog's statement {statement} is damaged: a text in it is not UTF-8: {exc}"
    )
