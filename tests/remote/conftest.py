"""A broker on a loopback port over a store in a folder, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Store]:
    """The store that the broker has open."""
    with ab.connect(tmp_path / "river", create=True) as made:
        yield made


@pytest.fixture
def address(embedded: Store) -> Iterator[str]:
    """The address of the broker."""
    with FlightService(Broker(embedded, OpenGuard())) as service:
        yield f"anabranch://127.0.0.1:{service.port}"
        service.drain(5)


@pytest.fixture
def remote(address: str) -> Iterator[Store]:
    """The store by its broker."""
    with ab.connect(address) as store:
        yield store
