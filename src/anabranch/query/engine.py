"""Queries: which streams a text names, and DuckDB's answer to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Final, TypeVar

import pyarrow as pa

from anabranch.errors import InvalidName, InvalidSql, MissingExtra
from anabranch.model.names import StreamName
from anabranch.query.dataset import StreamDataset
from anabranch.store import Store

try:
    import duckdb
except ImportError as exc:
    raise MissingExtra("a query", "query") from exc

_NO_TABLE = re.compile(r'Table with name "?([^"!]+?)"? does not exist')
_T = TypeVar("_T")
_BATCH_ROWS: Final = 65_536
_NAME: Final = r'(?:"((?:[^"]|"")+)"|([A-Za-z_]\w*))'
_NAMES = re.compile(rf"{_NAME}(?:\s*\.\s*{_NAME})?")
_ADDED = re.compile(r"\b_(?:segment|offset|appended)\b", re.IGNORECASE)


class Result:
    """What a query gave: batches of one schema, to be read once, in order, while its Query is open."""

    def __init__(self, batches: pa.RecordBatchReader, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._batches = batches
        self._call = call
        self.schema: pa.Schema = batches.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        def following() -> pa.RecordBatch | None:
            return next(self._batches, None)

        while (batch := self._call(following)) is not None:
            yield batch


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
        self._datasets: list[StreamDataset] = []

    def run(self, sql: str) -> Result | None:
        """Run one or several statements; the result of the last, or None where it has none. Raises InvalidSql, and
        while the result is read what a reader raises."""
        for name in sorted(self._streams_in(sql)):
            self._show(name, added=bool(_ADDED.search(sql)))
        batches = self._call(lambda: self._start(sql))
        return None if batches is None else Result(batches, self._call)

    def _start(self, sql: str) -> pa.RecordBatchReader | None:
        relation: Any = self._database.sql(sql)
        if relation is None:
            return None
        # Former releases have the same method under its former name.
        reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
        return reader(_BATCH_ROWS)

    def _call(self, work: Callable[[], _T]) -> _T:
        """Have DuckDB do something beside this thread, which Ctrl-C could not reach inside of DuckDB."""
        results: list[_T] = []
        errors: list[BaseException] = []
        ended = self._store.runtime.tasks.condition()

        def run() -> None:
            try:
                results.append(work())
            except BaseException as exc:
                errors.append(exc)
            with ended:
                ended.notify_all()

        def wait() -> None:
            with ended:
                while not results and not errors:
                    ended.wait()

        self._store.runtime.tasks.spawn("query", run)
        try:
            wait()
        except BaseException:
            self._database.interrupt()
            wait()
            raise
        if errors:
            raise self._translated(errors[0])
        return results[0]

    def _translated(self, error: BaseException) -> BaseException:
        """DuckDB's error as the store's: what a reader raised, or what is wrong with the query."""
        for dataset in self._datasets:
            if dataset.failure is not None:
                return dataset.failure
        if not isinstance(error, duckdb.Error):
            return error
        missing = _NO_TABLE.search(str(error))
        return InvalidSql(self._unknown(missing[1])) if missing else _invalid(str(error))

    def _unknown(self, table: str) -> str:
        """That a table is no stream, and which streams are called alike."""
        names = [f"{info.name.scope}.{info.name.name}" for info in self._store.streams.list()]
        alike = get_close_matches(table, names, n=3)
        hint = f"; did you mean {' or '.join(alike)}?" if alike else " (a stream is scope.name)"
        return f"there is no stream or table '{table}'{hint}"

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
                self._store.freshen(name)
                if self._store.streams.exists(name):
                    found.add(name)
        return found

    def _show(self, name: StreamName, *, added: bool) -> None:
        """Make a stream visible under its two names."""
        streams = self._store.streams
        dataset = StreamDataset(self._store, name, streams.head(name), streams.tail(name))
        source = f"stream {name}"
        self._datasets.append(dataset)
        self._database.register(source, dataset)
        wanted = [n for n in dataset.schema.names if added or n not in ("_segment", "_offset", "_appended")]
        columns = ", ".join(map(_quoted, wanted))
        self._database.execute(f"CREATE SCHEMA IF NOT EXISTS {_quoted(name.scope)}")
        for view in (_quoted(str(name)), f"{_quoted(name.scope)}.{_quoted(name.name)}"):
            self._database.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {_quoted(source)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _invalid(text: str) -> InvalidSql:
    told, _, where = text.partition("\n\nLINE ")
    number = re.match(r"\d+", where)
    message = " ".join(told.split())
    if "syntax error at or near" in message and re.search(r"\bat\b", where, re.IGNORECASE):
        message += ' (AT is a word of DuckDB: write a column of that name as "at")'
    return InvalidSql(message, int(number[0]) if number else None)
