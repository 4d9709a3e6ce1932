"""A broker's Flight server on loopback, and a plain client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import flight

from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from tests.store.helpers import store_at


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store of SQLite and a folder with the raw stream `s/a` of two segments."""
    with store_at("sqlite", tmp_path) as made:
        made.streams.create("s/a", scaling=2)
        yield made


@pytest.fixture
def service(store: Store) -> Iterator[FlightService]:
    """Its Flight server."""
    with FlightService(Broker(store, OpenGuard())) as served:
        yield served


@pytest.fixture
def client(service: FlightService) -> Iterator[flight.FlightClient]:
    """A client of pyarrow's."""
    with flight.FlightClient(f"grpc://127.0.0.1:{service.port}") as made:
        yield made
