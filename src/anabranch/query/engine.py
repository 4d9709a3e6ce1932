"""Runs SQL queries: finds the streams that a query names, and has DuckDB execute it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from anabranch.core.closeable import Closeable
from anabranch.errors import Closed, InvalidSql, NotRemote, ScopeNotFound, StreamNotFound
from anabranch.errors.optional import optional
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.query.dataset import StreamDataset
from anabranch.query.functions import ModuleFunctions
from anabranch.query.messages import DATABASE_SCHEMAS, FILES_ADVICE, over_memory, over_time, query_error, stream_tables
from anabranch.query.names import called_names, lists_tables, named_streams
from anabranch.query.sandbox import QueryDatabase, QueryLimits, check_statements
from anabranch.query.scan import Scans
from anabranch.query.sketches import SketchFunctions
from anabranch.query.sql_text import quoted
from anabranch.runtime.tasks import Tasks
from anabranch.store import Store

with optional("a query", "query"):
    import duckdb

_T = TypeVar("_T")
_BATCH_ROWS: Final = 65_536
_INTERRUPT_S: Final = 0.05
_POLL_S: Final = 1.0
_ADDED = re.compile(r"\b_(?:segment|offset|appended)\b", re.IGNORECASE)


class QueryResult:
    """The result of a query: batches of one schema, to be read once, in order. Its cursor is closed at its end, by
    `close`, by the next `run` and with its Query. Reading a result that was closed before its end raises Closed."""

    def __init__(
        self, batches: pa.RecordBatchReader, call: Callable[[Callable[[], Any]], Any], end: Callable[[], None]
    ) -> None:
        self._batches = batches
        self._call = call
        self._end = end
        self._over = False
        self.schema: pa.Schema = batches.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        def next_batch() -> pa.RecordBatch | None:
            return next(self._batches, None)

        while not self._over:
            batch = self._call(next_batch)
            if batch is None:
                self._over = True
                self._end()
                return
            yield batch

    def close(self) -> None:
        """Stop the query and close its cursor. A second close is harmless."""
        self._end()


class _QueryRun:
    """The state of one query, from its start until its cursor is closed."""

    def __init__(self, tasks: Tasks, deadline: float | None = None) -> None:
        self.scans = Scans(tasks)
        self.deadline = deadline  # on the monotonic clock
        self.changed = tasks.condition()  # guards the two below
        self.working = False  # a task is calling DuckDB for this query
        self.over = False  # no further task may start
        self.cursor: pa.RecordBatchReader | None = None
        self.ending = tasks.condition()  # held while the cursor is being closed; reentrant


class Query(Closeable):
    """Runs SQL over a store, in DuckDB's dialect, where `"scope/name"` and `scope.name` are streams.

    A stream has its columns, and also `_segment`, `_offset` and `_appended` if the query names one of these. A query
    sees all events from the stream's head to its tail at the time of `run`. Columns that it does not need are not read.
    Streams can't be changed; tables and views that a query creates are in memory and last as long as the object.
    Close the object, or use it as a context manager.
    """

    def __init__(
        self,
        store: Store,
        *,
        allow_files: bool = False,
        limits: QueryLimits | None = None,
        allowed: Mapping[StreamName, StreamId] | None = None,
        opened: QueryDatabase | None = None,
    ) -> None:
        """With `allow_files`, queries may read and write files of this machine and load extensions of DuckDB. A query
        that exceeds its limits raises QueryLimitExceeded. With `allowed`, queries see only these streams, under these
        names. `opened` is a database that was opened before, with the same `allow_files` and `limits`."""
        if not isinstance(store, Store):
            raise NotRemote("a broker runs queries itself: call anabranch.remote.query.query(store, sql)")
        self._store = store
        self._allow_files = allow_files
        self._limits = limits or QueryLimits()
        self._allowed = allowed
        # The streams of all queries so far, and the table that each is read as. A number makes the table's name unique,
        # because DuckDB ignores case.
        self._sources: dict[StreamName, str] = {}
        self._opened = opened or QueryDatabase(allow_files=allow_files, limits_=self._limits)
        self._database = self._opened.connection
        self._current = _QueryRun(store.runtime.tasks)
        self._functions = ModuleFunctions(store, self._database, lambda: self._current.scans)
        self._sketches = SketchFunctions(self._database, lambda: self._current.scans)
        self._closed = False
        store._keep(self)

    def run(
        self,
        sql: str,
        parameters: Sequence[object] = (),
        *,
        dialect: str | None = None,
        rows_max: int | None = None,
    ) -> QueryResult | None:
        """Run one or several statements and return the result of the last, or None if it has none. Ends the previous
        query. `parameters` are the values of `?` or `$1`, `$2` … in a single statement. With a `dialect`, such as
        `trino`, the SQL is that of another system, and is translated first.

        Raises InvalidSql and QueryLimitExceeded; reading the result may raise these and what a reader raises."""
        self._check_open()
        if dialect is not None:
            from anabranch.query.dialects.translate import translate  # most queries need none

            sql = translate(sql, dialect, "query")
        self._end(self._current)  # a DuckDB connection has at most one open cursor
        run = self._current = _QueryRun(self._store.runtime.tasks, self._deadline())
        try:
            sql = self._listing(sql) or sql
            self._check(run, sql)
            named = self._streams_in(sql)
            _check_distinct(map(str, named), "the streams")
            for name in sorted(named):
                self._create_views(name, added=bool(_ADDED.search(sql)))
            called = called_names(sql)
            self._sketches.register(called)
            self._functions.register(called)
            for name in self._sources.keys() - named:  # a view that an earlier query created may refer to it
                self._register_again(name)
            self._call(run, lambda: self._start(run, sql, list(parameters), rows_max))
        except BaseException:
            self._end(run)
            raise
        if run.cursor is None:
            self._end(run)
            return None
        return QueryResult(run.cursor, partial(self._call, run), partial(self._end, run))

    def _streams_in(self, sql: str) -> set[StreamName]:
        named = named_streams(self._store, sql)
        allowed = self._allowed
        if allowed is None:
            return set(named)
        # A name that has come to mean another stream since it was allowed is no table.
        return {name for name, stream in named.items() if allowed.get(name) == stream}

    def _listing(self, sql: str) -> str | None:
        """For SHOW TABLES, a query that returns the names of all streams as queries write them; else None."""
        if not sql.strip(" \t\r\n;"):
            raise InvalidSql("the query is empty")
        if not lists_tables(sql):
            return None
        tables = stream_tables(self._store, self._allowed)
        self._database.register("stream tables", pa.table({"name": pa.array(tables, pa.string())}))
        return 'SELECT name FROM "stream tables"'

    def describe(self, sql: str, parameters: Sequence[object] = ()) -> tuple[pa.Schema, int]:
        """The columns of the result, without running the query, and the number of its parameters. No columns if the
        statement is no query, or if the columns depend on a parameter that is not given. Raises InvalidSql,
        QueryLimitExceeded."""
        self._check_open()
        statements = self._statements(sql)
        last = statements[-1]
        count = len(last.named_parameters)
        schema = pa.schema([])
        if len(statements) == 1 and str(last.type).endswith(("SELECT", "EXPLAIN", "MULTI")):
            try:
                result = self.run(sql, parameters or [None] * count, rows_max=0)
            except InvalidSql:
                if parameters or not count:
                    raise
                result = None
            if result is not None:
                result.close()
                schema = result.schema
        return schema, count

    def _statements(self, sql: str) -> list[duckdb.Statement]:
        try:
            found = self._database.extract_statements(sql)
        except duckdb.Error as exc:
            raise query_error(self._store, str(exc), self._allowed) from exc
        if not found:
            raise InvalidSql("the query is empty")
        return found

    def _check(self, run: _QueryRun, sql: str) -> None:
        if not self._allow_files:
            try:
                # A broker, which passes `allowed`, never allows files: it gets no advice how to allow them.
                check_statements(self._database, sql, advice=FILES_ADVICE if self._allowed is None else "")
            except duckdb.Error as exc:
                raise self._translated(run, exc) from exc

    def _deadline(self) -> float | None:
        seconds = self._limits.seconds
        return None if seconds is None else self._store.runtime.clock.monotonic() + seconds

    def _start(self, run: _QueryRun, sql: str, parameters: list[object], rows_max: int | None) -> None:
        relation: Any = self._database.sql(sql, params=parameters or None)
        if relation is not None:
            relation = relation if rows_max is None else relation.limit(rows_max)
            # Older releases of DuckDB have this method under another name.
            reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
            run.cursor = reader(_BATCH_ROWS)

    def _call(self, run: _QueryRun, work: Callable[[], _T]) -> _T:
        """Call DuckDB on another thread and wait, because Ctrl-C would not interrupt this thread inside DuckDB. Raises
        Closed if the query has ended, or ends meanwhile."""
        results: list[_T] = []
        errors: list[BaseException] = []
        changed = run.changed

        def work_and_report() -> None:
            with changed:
                if run.over:
                    return
                run.working = True
            report: Callable[[Any], None] = errors.append
            try:
                found: Any = work()
                report = results.append
            except BaseException as exc:
                found = exc
            # Under one lock: a caller that sees the report may call again, and `working` is then another task's.
            with changed:
                report(found)
                run.working = False
                changed.notify_all()

        if run.scans.closed:
            raise Closed("query")
        try:
            self._store.runtime.tasks.spawn("query", work_and_report)
            with changed:
                while not results and not errors:
                    if run.over:
                        raise Closed("query")
                    changed.wait(self._time_left(run))
        except BaseException:
            self._end(run)
            raise
        if errors:
            error = self._translated(run, errors[0])
            self._end(run)
            raise error
        return results[0]

    def _time_left(self, run: _QueryRun) -> float:
        """The seconds to wait before the next check of the query. Raises QueryLimitExceeded at its deadline."""
        if run.deadline is None:
            return _POLL_S
        left = run.deadline - self._store.runtime.clock.monotonic()
        if left <= 0:
            raise over_time(self._limits)
        return min(left, _POLL_S)

    def _end(self, run: _QueryRun) -> None:
        """Stop a query and close its cursor. Afterwards no thread of DuckDB reads for the query. A second call is
        harmless, and completes what an interrupted first call left."""
        run.scans.stop()
        with run.changed:
            run.over = True
            while run.working:
                self._functions.interrupt()
                self._database.interrupt()  # repeated, because DuckDB ignores an interrupt before it has begun
                run.changed.wait(_INTERRUPT_S)
        with run.ending:
            if run.cursor is not None:
                run.cursor.close()
                run.cursor = None
            run.scans.close()

    def _translated(self, run: _QueryRun, error: BaseException) -> BaseException:
        """Translate DuckDB's error into the store's: the error that a reader raised, or InvalidSql."""
        if run.scans.failure is not None:
            return run.scans.failure
        if run.scans.closed:
            return Closed("query")
        if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or str(error).startswith("Out of Memory Error"):
            return over_memory(str(error))
        # DuckDB raises an OSError for an error while a result was read.
        return (
            query_error(self._store, str(error), self._allowed) if isinstance(error, duckdb.Error | OSError) else error
        )

    def close(self) -> None:
        """End the running query, if any, and release the database. A second close is harmless. Closing the store and
        exiting the interpreter do the same."""
        if self._closed:
            return
        self._end(self._current)
        self._functions.close()
        self._opened.close()
        self._closed = True
        self._store._forget(self)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("query")

    def _create_views(self, name: StreamName, *, added: bool) -> None:
        """Create views of a stream under its two names."""
        names = self._register(name)
        _check_distinct(names, f"of stream '{name}', the columns")
        wanted = [n for n in names if added or n not in ("_segment", "_offset", "_appended")]
        columns = ", ".join(map(quoted, wanted))
        views = [quoted(str(name))]
        if name.scope.lower() not in DATABASE_SCHEMAS:
            self._database.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(name.scope)}")
            views.append(f"{quoted(name.scope)}.{quoted(name.name)}")
        for view in views:
            self._database.execute(
                f"CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {quoted(self._sources[name])}"
            )

    def _register(self, name: StreamName) -> list[str]:
        """Make the stream's events as of now the source of its views. Returns the names of all columns."""
        dataset = StreamDataset(
            self._store, name, self._store.cuts.head(name), self._store.cuts.tail(name), lambda: self._current.scans
        )
        source = self._sources.setdefault(name, f"stream {len(self._sources)} {name}")
        self._database.register(source, dataset)
        return list(dataset.schema.names)

    def _register_again(self, name: StreamName) -> None:
        self._store.notifications.freshen(name)
        with suppress(StreamNotFound, ScopeNotFound):  # a query of its views raises this error
            self._register(name)


def _check_distinct(names: Iterable[str], what: str) -> None:
    """Raise InvalidSql if two names differ only in case: DuckDB would take one for the other."""
    found: dict[str, str] = {}
    for name in sorted(names):
        other = found.setdefault(name.lower(), name)
        if other != name:
            raise InvalidSql(f"the {what} '{other}' and '{name}' differ only in case, so a query can't tell them apart")
