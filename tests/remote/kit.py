"""A Flight server with the sessions of a broker alone, and a connection to some of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from anabranch.errors import StoreUnavailable
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.sessions import SessionHost
from anabranch.store import Store


class SessionServer(fl.FlightServerBase):
    """Serves the sessions of one store on a free port."""

    def __init__(self, store: Store, guard: Any = None) -> None:
        self.host = SessionHost(Broker(store, guard or OpenGuard()))
        super().__init__("grpc://127.0.0.1:0")
        self.url = f"grpc://127.0.0.1:{self.port}"

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self.host.serve(Principal("tester"), descriptor.command, reader, writer)


class Connection:
    """`Exchanges` over one or several addresses, in turn."""

    def __init__(self, *urls: str) -> None:
        self._urls = list(urls)
        self._used = 0
        self._client = fl.connect(self.place)

    @property
    def place(self) -> str:
        return self._urls[self._used % len(self._urls)]

    def exchange(self, command: bytes) -> tuple[Any, Any]:
        try:
            return self._client.do_exchange(fl.FlightDescriptor.for_command(command))  # type: ignore[no-any-return]
        except (pa.ArrowException, OSError) as exc:
            raise StoreUnavailable(f"no broker at {self.place}") from exc

    def lost(self, error: Exception) -> None:
        self._used += 1
        with suppress(pa.ArrowException):
            self._client.close()
        self._client = fl.connect(self.place)


@contextmanager
def served(store: Store) -> Iterator[Connection]:
    """A connection to a server of the store."""
    server = SessionServer(store)
    try:
        yield Connection(server.url)
    finally:
        server.host.close()
        server.shutdown()
