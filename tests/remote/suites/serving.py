"""A store by its broker, and the suites of the embedded store to run on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.actions import StoreActions
from anabranch.server.flight.service import FlightService
from anabranch.server.flight.sessions import SessionHost
from anabranch.store import Store


@contextmanager
def served_store(folder: Path) -> Iterator[Store]:
    """A client of a broker of a new store."""
    with ab.connect(folder, create=True) as embedded:
        broker = Broker(embedded, OpenGuard())
        sessions = SessionHost(broker)
        with FlightService(broker, actions=StoreActions(broker), exchanges=sessions) as service:
            with ab.connect(f"anabranch://127.0.0.1:{service.port}") as remote:
                yield remote
            service.drain(5)


def suite(module: str, *, without: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The tests and fixtures of a module, without those that can't run over a connection, each with the reason."""
    found = {name: each for name, each in vars(import_module(module)).items() if _collected(name, each)}
    for name in without or {}:
        del found[name]
    return found


def _collected(name: str, each: Any) -> bool:
    return name.startswith("test_") or type(each).__name__ == "FixtureFunctionDefinition"
