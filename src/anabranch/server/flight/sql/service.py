"""Answers the calls of Flight SQL. A query may name the streams that its caller may read, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from google.protobuf.message import Message
from pyarrow import flight

from anabranch import limits
from anabranch.errors import InvalidArgument, TooLarge
from anabranch.query.isolated import IsolatedResult
from anabranch.query.sandbox import QueryLimits
from anabranch.runtime.ids import token
from anabranch.security.guard import Principal
from anabranch.server.abandoned import closed_with
from anabranch.server.broker import Broker
from anabranch.server.flight.sql.handles import SqlStatement
from anabranch.server.flight.sql.listings import answer, schema_of
from anabranch.server.queries import CallersQueries
from anabranch.wire.commands import pack, parse, unpack, unpack_as
from anabranch.wire.frames import pack_table
from anabranch.wire.v1 import flight_sql_pb2 as sql

ACTIONS: Final = (
    ("CreatePreparedStatement", "Prepare a query: ActionCreatePreparedStatementRequest of Flight SQL."),
    ("ClosePreparedStatement", "Forget a prepared query: ActionClosePreparedStatementRequest of Flight SQL."),
    ("CancelQuery", "Stop a query: ActionCancelQueryRequest of Flight SQL."),
    ("CancelFlightInfo", "Stop a query: CancelFlightInfoRequest of Flight."),
    ("CloseSession", "Does nothing: there are no sessions."),
)
_NO_CHANGES: Final = "queries are read-only; append with Flight's DoPut, or with another call of the broker"
_CLOSED: Final = b"\x08\x01"  # CloseSessionResult with the status CLOSED


class FlightSql:
    """Flight SQL over a broker's store. Thread-safe. Close it.

    A statement is translated where it comes in, if the call names a `dialect`: its handle has DuckDB's SQL."""

    def __init__(self, broker: Broker, query_limits: QueryLimits) -> None:
        self._broker = broker
        self.queries = CallersQueries(broker, query_limits)
        self._lock = broker.store.runtime.tasks.lock()
        self._bound: dict[str, SqlStatement] = {}  # for clients that don't take over the handle that DoPut returns
        self._running: dict[str, list[bool]] = {}  # by statement: whether it was cancelled

    def close(self) -> None:
        """End the processes that run the queries. A second call is harmless."""
        self.queries.close()

    def info(self, principal: Principal, descriptor: Any, dialect: str | None) -> Any:
        """GetFlightInfo: the columns of an answer, and the ticket for it."""
        command = unpack(descriptor.command or b"")
        schema = schema_of(command)
        ticket: Message = command
        if schema is None:
            statement = self._statement(command, dialect)
            ticket = sql.TicketStatementQuery(statement_handle=statement.to_bytes())
            schema = self._described(principal, statement).schema
        return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(pack(ticket), [])], -1, -1)

    def stream(
        self, principal: Principal, ticket: bytes, over: Callable[[], bool], dialect: str | None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """DoGet: the columns and the batches. `over` says whether the client is gone."""
        command = unpack(ticket)
        schema = schema_of(command)
        if schema is not None:
            return schema, iter(answer(self._broker, principal, command).to_batches())
        statement = self._statement(command, dialect)
        cancelled = [False]
        result = self.queries.run(
            principal, statement.sql, parameters=statement.table, over=lambda: cancelled[0] or over()
        )
        return result.schema, closed_with(self._batches(principal, statement, result, cancelled), result.close)

    def put(self, descriptor: Any, reader: Any, writer: Any) -> None:
        """DoPut: the parameters of a prepared query."""
        command = unpack(descriptor.command or b"")
        if not isinstance(command, sql.CommandPreparedStatementQuery):
            raise InvalidArgument(_NO_CHANGES)
        statement = SqlStatement.from_bytes(command.prepared_statement_handle)
        bound = SqlStatement(statement.id, statement.sql, _parameters(reader))
        with self._lock:
            self._bound[bound.id] = bound
            while len(self._bound) > limits.SQL_STATEMENTS_KEPT:
                del self._bound[next(iter(self._bound))]
        answer_ = sql.DoPutPreparedStatementResult(prepared_statement_handle=bound.to_bytes())
        writer.write(answer_.SerializeToString())

    def act(self, principal: Principal, kind: str, body: bytes, dialect: str | None) -> Iterator[bytes]:
        """DoAction, of the kinds in ACTIONS."""
        match kind:
            case "CreatePreparedStatement":
                yield self._prepare(principal, unpack_as(sql.ActionCreatePreparedStatementRequest, body), dialect)
            case "ClosePreparedStatement":
                closed = unpack_as(sql.ActionClosePreparedStatementRequest, body)
                with self._lock:
                    self._bound.pop(SqlStatement.from_bytes(closed.prepared_statement_handle).id, None)
            case "CancelQuery":
                request = unpack_as(sql.ActionCancelQueryRequest, body)
                yield pack(self._cancel(request.info))
            case "CancelFlightInfo":
                request = parse(sql.ActionCancelQueryRequest, body)  # its fields are the same, and there is no Any
                yield self._cancel(request.info).SerializeToString()
            case _:
                yield _CLOSED

    def _prepare(
        self, principal: Principal, command: sql.ActionCreatePreparedStatementRequest, dialect: str | None
    ) -> bytes:
        statement = self._new(command.query, dialect)
        found = self._described(principal, statement)
        parameters = pa.schema([(str(number + 1), pa.string()) for number in range(found.parameters)])
        return pack(
            sql.ActionCreatePreparedStatementResult(
                prepared_statement_handle=statement.to_bytes(),
                dataset_schema=found.schema.serialize().to_pybytes(),
                parameter_schema=parameters.serialize().to_pybytes() if found.parameters else b"",
            )
        )

    def _statement(self, command: Message, dialect: str | None) -> SqlStatement:
        match command:
            case sql.CommandStatementQuery():
                return self._new(command.query, dialect)
            case sql.TicketStatementQuery():
                return SqlStatement.from_bytes(command.statement_handle)
            case sql.CommandPreparedStatementQuery():
                statement = SqlStatement.from_bytes(command.prepared_statement_handle)
                with self._lock:
                    bound = self._bound.get(statement.id)
                return bound if bound is not None and not statement.parameters else statement
            case _:
                raise InvalidArgument(f"{command.DESCRIPTOR.name} is not served: {_NO_CHANGES}")

    def _new(self, query: str, dialect: str | None) -> SqlStatement:
        return SqlStatement(token(self._broker.store.runtime.ids), self.queries.translated(query, dialect))

    def _described(self, principal: Principal, statement: SqlStatement) -> IsolatedResult:
        result = self.queries.run(principal, statement.sql, parameters=statement.table, describe=True)
        for _ in result:  # none; the process is free for the next query
            continue
        return result

    def _batches(
        self, principal: Principal, statement: SqlStatement, result: IsolatedResult, cancelled: list[bool]
    ) -> Iterator[pa.RecordBatch]:
        with self._lock:
            self._running[statement.id] = cancelled
        try:
            with self._broker.guard.hold(principal, "connections"):
                yield from result
        finally:
            result.close()
            with self._lock:
                self._running.pop(statement.id, None)

    def _cancel(self, info: bytes) -> sql.ActionCancelQueryResult:
        try:
            endpoints = flight.FlightInfo.deserialize(info).endpoints
        except (pa.ArrowException, ValueError) as exc:
            raise InvalidArgument("expected a serialized FlightInfo") from exc
        result = sql.ActionCancelQueryResult(result="CANCEL_RESULT_NOT_CANCELLABLE")
        for endpoint in endpoints:
            command = unpack(endpoint.ticket.ticket)
            if isinstance(command, sql.TicketStatementQuery):
                with self._lock:
                    running = self._running.get(SqlStatement.from_bytes(command.statement_handle).id)
                if running is not None:
                    running[0] = True
                    result = sql.ActionCancelQueryResult(result="CANCEL_RESULT_CANCELLING")
        return result


def _parameters(reader: Any) -> bytes:
    """The values of the parameters, as an Arrow stream of one row."""
    table = reader.read_all()
    if table.num_rows != 1:
        raise InvalidArgument(f"a query takes one row of parameters, not {table.num_rows}")
    if table.nbytes > limits.COMMAND_BYTES_MAX // 2:
        raise TooLarge("the parameters of a query", table.nbytes, limits.COMMAND_BYTES_MAX // 2)
    data: bytes = pack_table(table).to_pybytes()
    return data
