"""A Flight server with the sessions of a broker alone, and a connection to some of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow.flight as fl

from anabranch.remote.address import BrokerAddress
from anabranch.remote.connection import Connection, Credentials
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.sessions import SessionHost
from anabranch.store import Store
from anabranch.wire.frames import Frame


class LostAnswer:
    """Loses the connection in the place of the answer to the first request of a kind."""

    def __init__(self) -> None:
        self.verb: str | None = None
        self.number = 0
        self.lost = False

    def requested(self, frame: Frame) -> None:
        if frame.verb == self.verb and not self.lost:
            self.number = frame.number

    def answers(self, frame: Frame) -> None:
        if self.number and frame.number == self.number:
            self.number, self.lost = 0, True
            raise OSError("the connection was lost")


class _Watched:
    def __init__(self, reader: Any, losing: LostAnswer) -> None:
        self._reader = reader
        self._losing = losing

    def read_chunk(self) -> Any:
        if self._losing.lost:
            raise OSError("the connection was lost")
        chunk = self._reader.read_chunk()
        self._losing.requested(Frame.unpack(chunk.app_metadata))
        return chunk


class _Losing:
    def __init__(self, writer: Any, losing: LostAnswer) -> None:
        self._writer = writer
        self._losing = losing

    def write_metadata(self, buf: Any) -> None:
        self._losing.answers(Frame.unpack(buf))
        self._writer.write_metadata(buf)


class SessionServer(fl.FlightServerBase):  # type: ignore[misc]
    """Serves the sessions of one store on a free port."""

    def __init__(self, store: Store, guard: Any = None) -> None:
        self._losing = LostAnswer()
        self.host = SessionHost(Broker(store, guard or OpenGuard()))
        super().__init__("grpc://127.0.0.1:0")
        self.url = f"grpc://127.0.0.1:{self.port}"

    def end(self) -> None:
        """End it. Calls whose client is silent are left behind: nothing can end them but the end of the process."""
        self.host.close()
        threading.Thread(target=self.shutdown, daemon=True).start()

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        losing = self._losing
        self.host.serve(
            Principal("tester"),
            descriptor.command,
            _Watched(reader, losing),
            _Losing(writer, losing),
        )

    def lose_answers(self, verb: str) -> LostAnswer:
        """From now on the connection is lost when the first request of this kind was done, before its answer."""
        self._losing.verb = verb
        return self._losing


def connection_to(*urls: str) -> Connection:
    """A connection to one of several servers, in turn."""
    address = BrokerAddress(tuple(url.removeprefix("grpc://") for url in urls), tls=False)
    return Connection(address, Credentials(), Runtime())


@contextmanager
def served(store: Store) -> Iterator[Connection]:
    """A connection to a server of the store."""
    server = SessionServer(store)
    connection = connection_to(server.url)
    try:
        yield connection
    finally:
        connection.close()
        server.end()
