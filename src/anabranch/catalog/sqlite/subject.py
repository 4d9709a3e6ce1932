"""A writing transaction with a subject on SQLite: asserts that it touches nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from anabranch.catalog import rows
from anabranch.catalog.port import StreamTail, Subject
from anabranch.catalog.sqlite.writing import SqliteWriting
from anabranch.catalog.subject import SubjectWriting, check_statement
from anabranch.model.names import StreamName


class SqliteSubjectWriting(SubjectWriting, SqliteWriting):
    """`SqliteWriting` of a transaction on `subject`."""

    def __init__(self, database: apsw.Connection, subject: Subject) -> None:
        super().__init__(database)
        self._on = subject
        self._streams = set()
        self._names = set()
        match subject:
            case StreamName():
                self._names.add(subject)
                found = SqliteWriting.stream(self, subject)
                if found is not None:
                    self._streams.add(found.id)
            case StreamTail():
                self._streams.add(subject.stream)
            case int():
                self._streams.add(subject)

    def _rows(self, name: str, values: Any = ()) -> list[rows.Row]:
        check_statement(self._on, name)
        return super()._rows(name, values)

    def _row(self, name: str, values: Any = ()) -> rows.Row | None:
        check_statement(self._on, name)
        return super()._row(name, values)

    def _execute(self, name: str, values: Any) -> int:
        check_statement(self._on, name)
        return super()._execute(name, values)

    def _execute_many(self, name: str, values: Sequence[Any]) -> None:
        check_statement(self._on, name)
        super()._execute_many(name, values)
