"""Changing the catalog on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from anabranch.catalog import rows
from anabranch.catalog.sqlite.append import Appending
from anabranch.catalog.sqlite.reading import SQL, SqliteReading
from anabranch.catalog.tables import Value
from anabranch.catalog.writing import SqlWriting
from anabranch.model.append import BlobEntry, Progress, Unit, Verdict
from anabranch.model.ids import Micros


class SqliteWriting(SqliteReading, SqlWriting):
    """`catalog.port.Writing` over a connection inside `begin immediate`."""

    TAKEN = apsw.ConstraintError

    def _do(self, name: str, values: Any) -> int:
        self._database.execute(SQL[name], values)
        return self._database.changes()

    def _many(self, name: str, values: Sequence[Any]) -> None:
        self._database.executemany(SQL[name], values)

    def _loadable(self, table: str, row: Sequence[Value]) -> Sequence[Value]:
        return row

    def skip_ids(self, count: int) -> None:
        self._do("list_sequences", ())
        self._do("skip_ids", (count,))

    def _recent(self, progress: Progress) -> bytes:
        return rows.pack_recent(progress.recent)

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        appending = Appending(self._database, now, [unit], blobs)
        verdicts = appending.unit(unit)
        appending.flush()
        return verdicts
