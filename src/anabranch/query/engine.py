"""Queries: which streams a text names, and DuckDB's answer to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final

import pyarrow as pa

from anabranch.errors import InvalidName, InvalidSql, MissingExtra
from anabranch.model.names import StreamName
from anabranch.query.dataset import StreamDataset
from anabranch.store import Store

try:
    import duckdb
except ImportError as exc:
    raise MissingExtra("a query", "query") from exc

_BATCH_ROWS: Final = 65_536
_NAME: Final = r'(?:"((?:[^"]|"")+)"|([A-Za-z_]\w*))'
_NAMES = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})?")
_ADDED = re.compile(r"\b_(?:segment|offset|appended)\b", re.IGNORECASE)


class Result:
    """What a query gave: batches of one schema, to be read once, in order."""

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self._batches = batches
        self.schema: pa.Schema = batches.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        with _translated():
            yield from self._batches


class Query:
    """An answering machine over a store: SQL in DuckDB's dialect, where `"scope/name"` and `scope.name` are streams.

    A stream has its columns, and `_segment`, `_offset` and `_appended` where the text names one of these. All its
    events from its head to its tail are seen, as of when `run` was called. Columns that a query does not need are not
    read. Close it, or use it as a context manager.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._database = duckdb.connect(config={"autoinstall_known_extensions": False})
        self._database.execute("SET TimeZone = 'UTC'")

    def run(self, sql: str) -> Result | None:
        """Run one or several statements; the result of the last, or None where it has none. Raises InvalidSql, and
        while the result is read what a reader raises."""
        for name in sorted(self._streams_in(sql)):
            self._show(name, added=bool(_ADDED.search(sql)))
        with _translated():
            relation: Any = self._database.sql(sql)
            if relation is None:
                return None
            # Releases before 1.4 have the same method under its former name.
            reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            return Result(reader(_BATCH_ROWS))

    def close(self) -> None:
        """Release the database. A second close is harmless."""
        self._database.close()

    def __enter__(self) -> Query:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _streams_in(self, sql: str) -> set[StreamName]:
        """The streams whose names stand in the text. DuckDB's own parser gives out the tables of SELECT alone, so
        every name is looked up; one that stands there by chance costs a look."""
        found = set()
        for quoted, bare, second_quoted, second_bare in _NAMES.findall(sql):
            first, second = quoted.replace('""', '"') or bare, second_quoted.replace('""', '"') or second_bare
            for text in {first, f"{first}/{second}" if second else first}:
                try:
                    name = StreamName.parse(text)
                except InvalidName:
                    continue
                if self._store.streams.exists(name):
                    found.add(name)
        return found

    def _show(self, name: StreamName, *, added: bool) -> None:
        """Make a stream visible under its two names."""
        streams = self._store.streams
        dataset = StreamDataset(self._store, name, streams.head(name), streams.tail(name))
        source = f"stream {name}"
        self._database.register(source, dataset)
        wanted = [n for n in dataset.schema.names if added or n not in ("_segment", "_offset", "_appended")]
        columns = ", ".join(map(_quoted, wanted))
        self._database.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name.scope)}")
        for view in (_quoted(str(name)), f"{_quoted(name.scope)}.{_quoted(name.name)}"):
            self._database.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {_quoted(source)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _translated:  # noqa: N801 - reads as a statement
    """Raise DuckDB's errors as the store's, on one line."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, duckdb.InterruptException):
            raise KeyboardInterrupt from error
        if isinstance(error, duckdb.Error):
            raise _invalid(str(error)) from error


def _invalid(text: str) -> InvalidSql:
    told, _, where = text.partition("\n\nLINE ")
    number = re.match(r"\d+", where)
    message = " ".join(told.split())
    if "syntax error at or near" in message and re.search(r"\bat\b", where, re.IGNORECASE):
        message += ' (AT is a word of DuckDB: write a column of that name as "at")'
    return InvalidSql(message, int(number[0]) if number else None)
