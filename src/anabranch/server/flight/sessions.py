"""The sessions of a broker: DoExchange, one session an exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AnabranchError, Closed, InvalidArgument, StoreUnavailable
from anabranch.runtime.log_events import SESSION_FAILED
from anabranch.runtime.periodic import Periodic
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.exchange import Exchange, Session
from anabranch.server.flight.groups import GroupSession
from anabranch.server.flight.notifications import ListenerSession, NotificationSession
from anabranch.server.flight.transactions import TransactionSession
from anabranch.wire.errors import error_to_json
from anabranch.wire.frames import Frame

_Open = Callable[[Broker, Principal, Exchange, Frame], Session]
_KINDS: Final[Mapping[str, _Open]] = {
    "group.read": GroupSession,
    "notifications.listen": ListenerSession,
    "notifications.read": NotificationSession,
    "transaction": TransactionSession,
}


class SessionHost:
    """Serves exchanges. Thread-safe; each exchange is served in the thread of its call. `close` ends all sessions, for a
    broker that drains."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._runtime = broker.store.runtime
        self._lock = self._runtime.tasks.lock()
        self._open: dict[Exchange, float] = {}  # with the seconds of silence after which each ends
        self._closed = False
        self._watch = Periodic(self._runtime, "silent sessions", limits.SESSION_WATCH_S, self._end_silent)
        self._watch.start()

    @property
    def count(self) -> int:
        """How many sessions are open."""
        return len(self._open)

    def serve(self, principal: Principal, command: bytes, incoming: Any, outgoing: Any) -> None:
        """Serve one exchange to its end, with Flight's reader and writer. If opening the session fails, the error is
        the only answer."""
        exchange = Exchange(self._runtime, outgoing)
        guard = self._broker.guard
        try:
            if self._closed:
                raise StoreUnavailable("this broker is about to end; call another one")
            request = Frame.unpack(pa.py_buffer(command))
            with guard.hold(principal, "followers"):
                self._serve(self._session(principal, exchange, request), exchange, incoming)
        except Closed:
            return
        except Exception as exc:
            if not isinstance(exc, AnabranchError):
                SESSION_FAILED(verb="open", error=exc, traceback=exc)
            with suppress(Closed):
                exchange.send(Frame("error", 0, {"error": error_to_json(exc)}))

    def _session(self, principal: Principal, exchange: Exchange, request: Frame) -> Session:
        open_session = _KINDS.get(request.verb)
        if open_session is None:
            raise InvalidArgument(f"expected one of {', '.join(sorted(_KINDS))}, got '{request.verb:.100}'")
        return open_session(self._broker, principal, exchange, request)

    def _serve(self, session: Session, exchange: Exchange, incoming: Any) -> None:
        with self._lock:
            self._open[exchange] = session.silent_s
            if self._closed:
                exchange.end()
        try:
            exchange.send_opened(session.opened())
        except Closed:
            exchange.end()
        task = self._runtime.tasks.spawn("session", lambda: exchange.run(session))
        try:
            while exchange.receive(incoming.read_chunk().app_metadata):
                pass
        except (StopIteration, pa.ArrowException, OSError, InvalidArgument):
            pass  # the connection is gone, or the client sent a message that is not of this session
        finally:
            exchange.end()
            task.join()
            with self._lock:
                self._open.pop(exchange, None)

    def _end_silent(self) -> None:
        """End the sessions whose client is silent, also those that wait for the client to read an answer."""
        with self._lock:
            opened = list(self._open.items())
        for exchange, silent_s in opened:
            if exchange.silent_s > silent_s:
                exchange.end()

    def close(self) -> None:
        """End all sessions, and refuse new ones: clients continue on another broker. A second call is harmless."""
        with self._lock:
            self._closed = True
            opened = list(self._open)
        for exchange in opened:
            exchange.end()
        self._watch.close()
