"""Connections to brokers' Flight servers in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.remote.address import BrokerAddress
from anabranch.remote.connection import Connection, Credentials
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store


@contextmanager
def connected(*ports: int) -> Iterator[Connection]:
    """A connection to servers on these ports."""
    address = BrokerAddress(tuple(f"127.0.0.1:{port}" for port in ports), tls=False)
    connection = Connection(address, Credentials(), Runtime())
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def served(store: Store) -> Iterator[Connection]:
    """A connection to a server of this store."""
    with FlightService(Broker(store, OpenGuard())) as service, connected(service.port) as connection:
        yield connection
