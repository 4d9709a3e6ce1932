"""The Flight server: authenticates the caller, parses the command, and calls the module that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyarrow import flight

from anabranch.errors import AnabranchError, InvalidArgument, StoreUnavailable
from anabranch.query.sandbox import QueryLimits
from anabranch.runtime.log_events import FLIGHT_FAILED
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.actions import StoreActions
from anabranch.server.flight.append import append
from anabranch.server.flight.byte_reads import read_bytes
from anabranch.server.flight.callers import (
    DIALECT,
    TOKEN,
    DialectMiddleware,
    Handshake,
    TokenMiddleware,
    caller,
    dialect_of,
)
from anabranch.server.flight.counting import COUNTING, CallCounting
from anabranch.server.flight.history import read_history
from anabranch.server.flight.listing import described, listed
from anabranch.server.flight.read import read
from anabranch.server.flight.sessions import SessionHost
from anabranch.server.flight.sql.service import ACTIONS as SQL_ACTIONS
from anabranch.server.flight.sql.service import FlightSql
from anabranch.server.queries import BROKER_QUERY_LIMITS
from anabranch.wire.commands import PING, kind_of, named_stream, unpack, unpack_as
from anabranch.wire.flight_errors import to_flight
from anabranch.wire.v1 import anabranch_pb2 as v1

T = TypeVar("T")

_SQL_ACTIONS: Final = frozenset(kind for kind, _ in SQL_ACTIONS)


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a broker's store by Arrow Flight, from its construction on. Each call has a thread of its own.

    A call that waits for a silent client can't be ended by the server: only the end of the process ends it."""

    def __init__(
        self,
        broker: Broker,
        location: str = "grpc://127.0.0.1:0",
        *,
        query_limits: QueryLimits = BROKER_QUERY_LIMITS,
        counting: CallCounting | None = None,
        tls_certificates: list[tuple[bytes, bytes]] | None = None,
        client_ca: bytes | None = None,
    ) -> None:
        """`location` with port 0 takes a free one. With `client_ca`, clients need a certificate signed by that CA.
        The server then offers no handshake, because a handshake would hide the name in the certificate."""
        self._broker = broker
        self._queries = FlightSql(broker, query_limits)
        self._actions = StoreActions(broker, self._queries.queries)
        self._sessions = SessionHost(broker)
        self._changed = broker.store.runtime.tasks.condition()
        self._calls = 0
        self._draining = False
        options: dict[str, Any] = {"auth_handler": Handshake()}
        if client_ca is not None:
            options = {"verify_client": True, "root_certificates": client_ca}
        middleware: dict[str, Any] = {TOKEN: TokenMiddleware(broker.guard), DIALECT: DialectMiddleware()}
        if counting is not None:
            middleware[COUNTING] = counting
        try:
            super().__init__(location, tls_certificates=tls_certificates, middleware=middleware, **options)
        except BaseException:
            self._end_parts()
            raise

    # ending

    def drain(self, seconds: float) -> bool:
        """Refuse new calls, and wait for those under way. Returns False if some are still under way after
        `seconds`."""
        clock = self._broker.store.runtime.clock
        deadline = clock.monotonic() + seconds
        with self._changed:
            self._draining = True
        self._sessions.close()
        with self._changed:
            while self._calls and (left := deadline - clock.monotonic()) > 0:
                self._changed.wait(left)
            return not self._calls

    def close(self) -> None:
        """End all calls at once. Blocks while a client that appends is silent: call this method in a task that may be
        abandoned."""
        self._end_parts()
        self.shutdown()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _end_parts(self) -> None:
        self._queries.close()
        self._sessions.close()

    # the calls

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call(context) as principal:
            if _is_sql(descriptor.command):
                self._queries.put(descriptor, reader, writer)
            else:
                append(self._broker, principal, unpack_as(v1.AppendCommand, descriptor.command), reader, writer)

    def do_get(self, context: Any, ticket: Any) -> Any:
        def over() -> bool:
            """True if the client is gone. Raises StoreUnavailable if the broker ends, so that the client continues
            on another one."""
            if self._draining or self._broker.drain.started:
                raise StoreUnavailable("this broker is about to end; continue on another one")
            return bool(context.is_cancelled())

        with self._call(context) as principal:
            schema, rows = self._rows(principal, ticket.ticket, dialect_of(context), over)
            return flight.GeneratorStream(schema, self._counted(rows))

    def _rows(
        self, principal: Principal, ticket: bytes, dialect: str | None, over: Callable[[], bool]
    ) -> tuple[pa.Schema, Iterator[Any]]:
        if _is_sql(ticket):
            return self._queries.stream(principal, ticket, over, dialect)
        match unpack(ticket):
            case v1.RangeReadCommand() as command:
                return read_history(self._broker, principal, command, over)
            case v1.ByteReadCommand() as command:
                return read_bytes(self._broker, principal, command, over)
            case v1.ReadCommand() as command:
                return read(self._broker, principal, command, over)
            case command:
                raise InvalidArgument(
                    f"a ticket holds a ReadCommand, RangeReadCommand or ByteReadCommand, not {command.DESCRIPTOR.full_name}"
                )

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._call(context) as principal:
            if descriptor.path:
                return described(self._broker, principal, b"/".join(descriptor.path).decode("utf-8", "replace"))
            if _is_sql(descriptor.command):
                return self._queries.info(principal, descriptor, dialect_of(context))
            return described(self._broker, principal, named_stream(unpack_as(v1.DescribeCommand, descriptor.command)))

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        return flight.SchemaResult(self.get_flight_info(context, descriptor).schema)

    def list_flights(self, context: Any, criteria: bytes) -> Iterator[Any]:
        with self._call(context) as principal:
            return listed(self._broker, principal, criteria)

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        if action.type == PING:
            caller(self._broker.guard, context)
            return iter(())
        with self._call(context) as principal:
            body = b"" if action.body is None else action.body.to_pybytes()
            if action.type in _SQL_ACTIONS:
                return self._counted(self._queries.act(principal, action.type, body, dialect_of(context)))
            return self._counted(self._actions.run(principal, action.type, body))

    def list_actions(self, context: Any) -> list[Any]:
        with self._call(context):
            return [flight.ActionType(*each) for each in (*self._actions.kinds(), *SQL_ACTIONS)]

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call(context) as principal:
            self._sessions.serve(principal, descriptor.command or b"", reader, writer)

    # around each call

    @contextmanager
    def _call(self, context: Any) -> Iterator[Principal]:
        with self._counting():
            principal = caller(self._broker.guard, context)
            self._broker.guard.admit(principal)
            yield principal

    def _counted(self, results: Iterator[T]) -> Iterator[T]:
        """The results, which are computed while they are sent; the call is counted until the last one."""
        with self._counting():
            yield from results

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Count a call while it is under way, and translate its error into one of Flight."""
        with self._changed:
            self._calls += 1
        try:
            if self._draining:
                raise StoreUnavailable("this broker is about to end; call another one")
            yield
        except flight.FlightError:
            raise
        except Exception as exc:
            raise _answer(exc) from None
        finally:
            with self._changed:
                self._calls -= 1
                self._changed.notify_all()


def _is_sql(command: bytes | None) -> bool:
    """Whether this is a command of Flight SQL, not one of the package `anabranch`."""
    return not kind_of(command or b"").startswith("anabranch.")


def _answer(error: Exception) -> Exception:
    if not isinstance(error, AnabranchError | TimeoutError):
        FLIGHT_FAILED(error=error, traceback=error)
    answer: Exception = to_flight(error)
    return answer
