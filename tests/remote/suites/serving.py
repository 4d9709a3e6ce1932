"""A store by its broker, and the suites of the embedded store to run on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.remote.address import BrokerAddress, is_broker
from anabranch.remote.connection import Credentials
from anabranch.remote.store import RemoteStore
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.actions import StoreActions
from anabranch.server.flight.service import FlightService
from anabranch.server.flight.sessions import SessionHost
from anabranch.store import Store


@contextmanager
def served_store(folder: Path) -> Iterator[Store]:
    """A client of a broker of a new store."""
    with ab.connect(folder, create=True) as embedded, served(embedded) as url, ab.connect(url) as remote:
        yield remote


@contextmanager
def served(embedded: Store) -> Iterator[str]:
    """The address of a broker of this store."""
    broker = Broker(embedded, OpenGuard())
    sessions = SessionHost(broker)
    with FlightService(broker, actions=StoreActions(broker), exchanges=sessions) as service:
        yield f"anabranch://127.0.0.1:{service.port}"
        service.drain(5)


class ServedStore(RemoteStore):
    """A store by a broker of its own, which ends with it. `embedded` is the store that the broker has open: tests that look
    into the catalog or the blobs, or run upkeep on them, find those of the broker."""

    def __init__(self, embedded: Store, settings: Settings | None) -> None:
        self._behind = ExitStack()
        self.embedded = self._behind.enter_context(embedded)
        address = BrokerAddress.parse(self._behind.enter_context(served(embedded)))
        super().__init__(address, Credentials(), Runtime(settings=settings or Settings()))

    def close(self) -> None:
        """See `Store.close`."""
        with self._behind:
            super().close()


def _of_embedded(name: str) -> property:
    return property(lambda served: getattr(served.embedded, name))


for _name in ("blobs", "catalog", "changes", "companions", "internals", "job_store"):
    setattr(ServedStore, _name, _of_embedded(_name))


@contextmanager
def connecting_by_brokers() -> Iterator[None]:
    """Meanwhile `ab.connect` opens a store as before, has a broker serve it, and returns a client of that."""
    embedded: Callable[..., Any] = ab.connect

    def connect(url: Any, **options: Any) -> Any:
        opened = embedded(url, **options)
        return opened if is_broker(str(url)) else ServedStore(opened, options.get("settings"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ab, "connect", connect)
        yield


def suite(module: str, *, without: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The tests and fixtures of a module, without those that can't run over a connection, each with the reason."""
    found = {name: each for name, each in vars(import_module(module)).items() if _collected(name, each)}
    for name in without or {}:
        del found[name]
    return found


def _collected(name: str, each: Any) -> bool:
    return name.startswith("test_") or type(each).__name__ == "FixtureFunctionDefinition"
