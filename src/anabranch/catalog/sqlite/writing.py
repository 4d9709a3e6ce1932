"""Changing the catalog on SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from anabranch.catalog import rows
from anabranch.catalog.sqlite.append import DIGESTED, AppendBatch
from anabranch.catalog.sqlite.reading import SQL, SqliteReading
from anabranch.catalog.tables import Value
from anabranch.catalog.writing import SqlWriting
from anabranch.model.append import BlobEntry, Progress, Unit, Verdict
from anabranch.model.ids import BlobId, LogId, Micros, StreamId
from anabranch.model.producer import ProducerState


class SqliteWriting(SqliteReading, SqlWriting):
    """`catalog.port.Writing` over a connection inside `begin immediate`."""

    UNIQUE_VIOLATION = apsw.ConstraintError
    CONSTRAINT_VIOLATIONS = (apsw.ConstraintError, apsw.MismatchError)

    def __init__(self, database: apsw.Connection) -> None:
        super().__init__(database)
        self._changed_streams: set[StreamId] = set()

    def finish(self) -> None:
        """Complete the changes. Must be called once, before the commit."""
        self._update_counts()

    def _execute(self, name: str, values: Any) -> int:
        digested = DIGESTED.get(name)
        self._database.execute(SQL[name], values if digested is None else digested(values))
        return self._database.changes()

    def _execute_many(self, name: str, values: Sequence[Any]) -> None:
        digested = DIGESTED.get(name)
        self._database.executemany(SQL[name], values if digested is None else map(digested, values))

    # Rows whose id the database assigns can be digested only after it has.

    def new_log(self, stream: StreamId, *, appended_at: Micros) -> LogId:
        log = super().new_log(stream, appended_at=appended_at)
        self._execute("digest_log", (log,))
        return log

    def insert_blob(self, key: str, size: int, begun_at: Micros, encoding: str) -> BlobId:
        blob = super().insert_blob(key, size, begun_at, encoding)
        self._execute("digest_blob", (blob,))
        return blob

    def add_change(self, stream: StreamId | None, kind: str, detail: Mapping[str, object], *, now: Micros) -> None:
        super().add_change(stream, kind, detail, now=now)
        self._execute("digest_last_change", ())

    def _from_exported(self, table: str, row: Sequence[Value]) -> Sequence[Value]:
        return row

    def skip_ids(self, count: int) -> None:
        self._execute("list_sequences", ())
        self._execute("skip_ids", (count,))

    def _encode_recent(self, progress: Progress) -> bytes:
        return rows.pack_recent(progress.recent)

    def _encode_answers(self, producer: ProducerState) -> bytes:
        return producer.answers.packed

    def append(self, unit: Unit, *, now: Micros, blobs: Sequence[BlobEntry] = ()) -> tuple[Verdict, ...]:
        appending = AppendBatch(self._database, now, [unit], blobs)
        verdicts = appending.unit(unit)
        appending.flush()
        return verdicts
