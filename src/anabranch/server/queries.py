"""SQL of a broker's callers, over the streams that each of them may read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, InvalidArgument, InvalidName, InvalidSql
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.query.isolated import Form, IsolatedQueries, IsolatedResult
from anabranch.query.messages import unknown_table
from anabranch.query.names import lists_tables, named_streams
from anabranch.query.sandbox import QueryLimits
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker

BROKER_QUERY_LIMITS: Final = QueryLimits(
    memory_bytes=limits.QUERY_MEMORY_BYTES, spill_bytes=limits.QUERY_SPILL_BYTES, seconds=limits.QUERY_S_MAX
)


def one_row(values: Sequence[Any]) -> pa.Table | None:
    """The values of a query's parameters as a table of one row. None if there are no values. Raises InvalidArgument."""
    if not values:
        return None
    for value in values:
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise InvalidArgument("expected the parameters of a query as texts, numbers, true, false or null")
    try:
        return pa.table([pa.array([value]) for value in values], [str(number) for number, _ in enumerate(values, 1)])
    except UnicodeEncodeError as exc:
        raise InvalidArgument(f"a parameter of the query can't be used: it is not Unicode: {exc.reason}") from exc
    except (pa.ArrowException, OverflowError) as exc:
        raise InvalidArgument(f"a parameter of the query can't be used: {exc}") from exc


class CallersQueries:
    """Runs the queries of a broker's callers, each in a process of its own. Thread-safe. `close` ends these processes."""

    def __init__(self, broker: Broker, query_limits: QueryLimits = BROKER_QUERY_LIMITS) -> None:
        self._broker = broker
        self.isolated = IsolatedQueries(broker.store, query_limits)

    def close(self) -> None:
        """End the processes; queries that run end with an error. A second call is harmless."""
        self.isolated.close()

    def translated(
        self, sql: str, dialect: str | None, form: Form = "query", *, over: Callable[[], bool] = lambda: False
    ) -> str:
        """The SQL of another system as DuckDB's, or as statements of a `pipeline`; without a dialect the
        SQL is returned unchanged.
        `over` as in `run`. Raises InvalidSql, with the line, for syntax that has no translation, InvalidArgument for an
        unknown dialect, QueryLimitExceeded, RateLimited."""
        return sql if dialect is None else self.isolated.translate(sql, dialect, form, over)

    def run(
        self,
        principal: Principal,
        sql: str,
        *,
        parameters: pa.Table | None = None,
        describe: bool = False,
        over: Callable[[], bool] = lambda: False,
    ) -> IsolatedResult:
        """Start a query in DuckDB's SQL, as `IsolatedQueries.run`. The caller of this method counts the bytes that it
        sends. Raises also PermissionDenied if the query names a stream that the principal may not read, whether it
        exists or not."""
        streams = self._readable(principal, sql)
        try:
            return self.isolated.run(sql, streams, parameters=parameters, describe=describe, over=over)
        except InvalidSql as exc:
            self._check_hidden(principal, exc)
            raise

    def authorize(self, principal: Principal, sql: str) -> None:
        """Check that the principal may read all streams that the query names. For SHOW TABLES that is the whole store.
        Raises PermissionDenied."""
        store, guard = self._broker.store, self._broker.guard
        if lists_tables(sql):
            guard.authorize(principal, "read", None, verb="query")
        for stream in named_streams(store, sql).values():
            guard.authorize(principal, "read", str(store.streams.get(stream).name), verb="query")

    def _readable(self, principal: Principal, sql: str) -> dict[StreamName, StreamId]:
        """The streams that the query names and its caller may read."""
        store, guard = self._broker.store, self._broker.guard
        if lists_tables(sql):
            return {
                each.name: each.id for each in store.streams.list() if guard.allows(principal, "read", str(each.name))
            }
        return {
            name: stream
            for name, stream in named_streams(store, sql).items()
            if guard.allows(principal, "read", str(store.streams.get(stream).name))
        }

    def _check_hidden(self, principal: Principal, error: InvalidSql) -> None:
        """Raise PermissionDenied if the principal may not read the stream that the query names, whether or not it
        exists."""
        table = unknown_table(error)
        if table is None or not {"/", "."} & set(table):
            return
        try:
            name = StreamName.parse(table if "/" in table else table.replace(".", "/", 1))
        except InvalidName:
            return
        with suppress(AnabranchError):
            name = self._broker.store.streams.get(name).name
        self._broker.guard.authorize(principal, "read", str(name), verb="query")
