"""The Flight server: authenticates the caller, parses the command, and calls the module that carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa
from google.protobuf.message import Message
from pyarrow import flight

from anabranch.errors import AnabranchError, InvalidArgument, StoreUnavailable
from anabranch.runtime.log_events import FLIGHT_FAILED
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.append import append
from anabranch.server.flight.byte_reads import read_bytes
from anabranch.server.flight.callers import TOKEN, Handshake, TokenMiddleware, caller
from anabranch.server.flight.counting import COUNTING, CallCounting
from anabranch.server.flight.history import read_history
from anabranch.server.flight.listing import described, listed
from anabranch.server.flight.read import read
from anabranch.server.flight.sql.dialect import DIALECT, DialectMiddleware, dialect_of
from anabranch.server.flight.sql.service import ACTIONS as SQL_ACTIONS
from anabranch.streams.arguments import StreamKey
from anabranch.wire.commands import PING, kind_of, named_stream, unpack
from anabranch.wire.flight_errors import to_flight
from anabranch.wire.v1 import anabranch_pb2 as v1

T = TypeVar("T")
M = TypeVar("M", bound=Message)

_SQL_ACTIONS: Final = frozenset(kind for kind, _ in SQL_ACTIONS)


class Actions(Protocol):
    """DoAction: the verbs of the store."""

    def run(self, principal: Principal, kind: str, body: bytes) -> Iterable[bytes]:
        """The answer to one action, as one or more results."""
        ...

    def kinds(self) -> list[tuple[str, str]]:
        """The kinds of actions, each with a description."""
        ...


class ExchangeHost(Protocol):
    """DoExchange: group readers, transactions."""

    def serve(self, principal: Principal, command: bytes, reader: Any, writer: Any, /) -> None:
        """Serve one exchange to its end."""
        ...

    def close(self) -> None:
        """End all exchanges; clients continue on another broker."""
        ...


class Queries(Protocol):
    """Flight SQL: the commands of `arrow.flight.protocol.sql`. `dialect` is that of the SQL in a command; None: DuckDB's."""

    def info(self, principal: Principal, descriptor: Any, dialect: str | None, /) -> Any:
        """GetFlightInfo."""
        ...

    def stream(
        self, principal: Principal, ticket: bytes, over: Callable[[], bool], dialect: str | None, /
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """DoGet. `over` says whether the client is gone."""
        ...

    def act(self, principal: Principal, kind: str, body: bytes, dialect: str | None, /) -> Iterator[bytes]:
        """DoAction, of the kinds that `sql.service.ACTIONS` names."""
        ...

    def put(self, principal: Principal, descriptor: Any, reader: Any, writer: Any) -> None:
        """DoPut."""
        ...


class FlightService(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a broker's store by Arrow Flight, from its construction on. Each call has a thread of its own.

    A call whose client is silent can't be ended from here: `close` ends what it can, and the process has to exit.
    """

    def __init__(
        self,
        broker: Broker,
        location: str = "grpc://127.0.0.1:0",
        *,
        actions: Actions | None = None,
        exchanges: ExchangeHost | None = None,
        queries: Queries | None = None,
        counting: CallCounting | None = None,
        tls_certificates: list[tuple[bytes, bytes]] | None = None,
        client_ca: bytes | None = None,
    ) -> None:
        """`location` with port 0 takes a free one. `client_ca`: clients need a certificate signed by it; there is no
        handshake then, as it would hide the name in the certificate."""
        self._broker = broker
        self._actions = actions
        self._exchanges = exchanges
        self._queries = queries
        self._changed = broker.store.runtime.tasks.condition()
        self._calls = 0
        self._draining = False
        options: dict[str, Any] = {"auth_handler": Handshake()}
        if client_ca is not None:
            options = {"verify_client": True, "root_certificates": client_ca}
        middleware: dict[str, Any] = {TOKEN: TokenMiddleware(broker.guard), DIALECT: DialectMiddleware()}
        if counting is not None:
            middleware[COUNTING] = counting
        super().__init__(location, tls_certificates=tls_certificates, middleware=middleware, **options)

    # ending

    def drain(self, seconds: float) -> bool:
        """Refuse new calls, and wait for those under way. Returns False if some are left after this time."""
        clock = self._broker.store.runtime.clock
        deadline = clock.monotonic() + seconds
        with self._changed:
            self._draining = True
        if self._exchanges is not None:
            self._exchanges.close()
        with self._changed:
            while self._calls and (left := deadline - clock.monotonic()) > 0:
                self._changed.wait(left)
            return not self._calls

    # the calls

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call(context) as principal:
            if self._queries is not None and not kind_of(descriptor.command or b"").startswith("anabranch."):
                self._queries.put(principal, descriptor, reader, writer)
                return
            append(self._broker, principal, _command(descriptor, v1.AppendCommand), reader, writer)

    def do_get(self, context: Any, ticket: Any) -> Any:
        with self._call(context) as principal:
            if self._queries is not None and not kind_of(ticket.ticket).startswith("anabranch."):
                schema, rows = self._queries.stream(
                    principal, ticket.ticket, lambda: self._over(context), dialect_of(context)
                )
                return flight.GeneratorStream(schema, self._counted(rows))
            command = unpack(ticket.ticket)
            if isinstance(command, v1.RangeReadCommand):
                schema, rows = read_history(self._broker, principal, command, lambda: self._over(context))
                return flight.GeneratorStream(schema, self._counted(rows))
            if isinstance(command, v1.ByteReadCommand):
                schema, rows = read_bytes(self._broker, principal, command, lambda: self._over(context))
                return flight.GeneratorStream(schema, self._counted(rows))
            if not isinstance(command, v1.ReadCommand):
                raise InvalidArgument(
                    f"a ticket holds a ReadCommand, RangeReadCommand or ByteReadCommand, not {command.DESCRIPTOR.full_name}"
                )
            schema, batches = read(self._broker, principal, command, lambda: self._over(context))
            return flight.GeneratorStream(schema, self._counted(batches))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with self._call(context) as principal:
            named = descriptor.path or []
            if (
                self._queries is not None
                and not named
                and not kind_of(descriptor.command or b"").startswith("anabranch.")
            ):
                return self._queries.info(principal, descriptor, dialect_of(context))
            if named:
                stream: StreamKey = b"/".join(named).decode("utf-8", "replace")
            else:
                stream = named_stream(_command(descriptor, v1.DescribeCommand))
            return described(self._broker, principal, stream)

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
            if self._queries is not None and action.type in _SQL_ACTIONS:
                return self._counted(self._queries.act(principal, action.type, body, dialect_of(context)))
            if self._actions is None:
                raise InvalidArgument("this broker serves no actions")
            return self._counted(iter(self._actions.run(principal, action.type, body)))

    def list_actions(self, context: Any) -> list[Any]:
        with self._call(context):
            verbs = [] if self._actions is None else self._actions.kinds()
            queries = [] if self._queries is None else list(SQL_ACTIONS)
            return [flight.ActionType(*each) for each in (*verbs, *queries)]

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        with self._call(context) as principal:
            if self._exchanges is None:
                raise InvalidArgument("this broker serves no exchanges")
            self._exchanges.serve(principal, descriptor.command or b"", reader, writer)

    # around each call

    @contextmanager
    def _call(self, context: Any) -> Iterator[Principal]:
        with self._counting():
            principal = caller(self._broker.guard, context)
            self._broker.guard.admit(principal)
            yield principal

    def _counted(self, results: Iterator[T]) -> Iterator[T]:
        """Results that are made while they are sent."""
        with self._counting():
            yield from results

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Counts a call, and makes its error one that Flight sends."""
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

    def _over(self, context: Any) -> bool:
        """True if the client is gone. Raises StoreUnavailable where the client is to continue on another broker."""
        if self._draining or self._broker.drain.started:
            raise StoreUnavailable("this broker is about to end; continue on another one")
        return bool(context.is_cancelled())


def _command(descriptor: Any, kind: type[M]) -> M:
    command = unpack(descriptor.command or b"")
    if not isinstance(command, kind):
        raise InvalidArgument(f"expected {kind.DESCRIPTOR.full_name}, got {command.DESCRIPTOR.full_name}")
    return command


def _answer(error: Exception) -> Exception:
    if not isinstance(error, AnabranchError | TimeoutError):
        FLIGHT_FAILED(error=error, traceback=error)
    answer: Exception = to_flight(error)
    return answer
