"""A broker's HTTP front end on a loopback port, in a thread of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import uvicorn

from anabranch.security.guard import Guard, OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.edge.protocol import SocketProtocol, timed_protocol
from anabranch.server.http.app import HttpApp
from anabranch.server.http.direct_append import DirectAppends
from anabranch.store import Store
from tests.waiting import PATIENCE_S, until, until_ended

COLUMNS = pa.schema(
    [
        ("sensor", pa.string()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("value", pa.float64()),
        ("count", pa.int64()),
        ("data", pa.binary()),
    ]
)


class Unrecorded:
    """Counts and logs nothing."""

    def direct_began(self) -> None: ...

    def direct_ended(self, scope: Any, path: str, status: int, seconds: float, *, received: int, sent: int) -> None: ...


@dataclass
class Serving:
    """A running server."""

    url: str
    port: int
    broker: Broker


@contextmanager
def serving(
    store: Store, guard: Guard | None = None, *, origins: Sequence[str] = (), hosts: Sequence[str] = ("*",)
) -> Iterator[Serving]:
    broker = Broker(store, guard or OpenGuard())
    app = HttpApp(broker, origins=origins, hosts=hosts)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    direct = DirectAppends(lambda: app.front, Unrecorded(), connections_max=1000)
    config = uvicorn.Config(
        app,
        http=timed_protocol(PATIENCE_S, direct.take),
        ws=SocketProtocol,
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive(), PATIENCE_S)
        port = listener.getsockname()[1]
        yield Serving(f"http://127.0.0.1:{port}", port, broker)
    finally:
        server.should_exit = True
        until_ended(thread)
        listener.close()
