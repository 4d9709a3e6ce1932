"""A store by its broker, and the suites of the embedded store to run on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import pytest

import anabranch as ab
from anabranch.remote.address import BrokerAddress, is_broker
from anabranch.remote.connection import Credentials
from anabranch.remote.store import RemoteStore
from anabranch.runtime.clock import Clock
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from anabranch.testing.clock import ManualClock

_KINDS: Final = ("sqlite", "folder", "memory")


@contextmanager
def served_store(folder: Path) -> Iterator[Store]:
    """A client of a broker of a new store."""
    with ab.connect(folder, create=True) as embedded, served(embedded) as url, ab.connect(url) as remote:
        yield remote


@contextmanager
def served(embedded: Store) -> Iterator[str]:
    """The address of a broker of this store."""
    with (
        _moving_on(embedded.runtime.clock) as move_on,
        FlightService(Broker(embedded, OpenGuard())) as service,
    ):
        try:
            yield f"anabranch://127.0.0.1:{service.port}"
        finally:
            move_on()
            service.drain(5)


@contextmanager
def _moving_on(clock: Clock) -> Iterator[Callable[[], None]]:
    """Yields what lets a clock move on that stands still, until the block ends: by such a clock, a broker would wait for ever
    for a follower's next look at whether its client is there."""
    ended = threading.Event()

    def move() -> None:
        while not ended.wait(0.01):
            clock.pass_time(1_000_000)  # type: ignore[attr-defined]

    mover = threading.Thread(target=move, name="moving the clock")
    try:
        yield mover.start if isinstance(clock, ManualClock) else lambda: None
    finally:
        ended.set()
        if mover.ident is not None:
            mover.join()


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


@pytest.fixture(scope="module", autouse=True)
def brokers() -> Iterator[None]:
    """For a module of this folder to import: all stores of its tests are clients of brokers."""
    with connecting_by_brokers():
        yield


def suite(*modules: str, without: Mapping[str, str] | None = None, slow: Iterable[str] = ()) -> dict[str, Any]:
    """The tests and fixtures of modules, without those that can't run over a connection, each with the reason. Those
    named in `slow` are left out of a plain run, since the embedded store's run of them is in it. A fixture that opens stores of
    several kinds opens one, since a client of a broker can't tell them apart."""
    found: dict[str, Any] = {}
    for module in modules:
        found.update((name, each) for name, each in vars(import_module(module)).items() if _collected(name, each))
    for name in without or {}:
        del found[name]
    unknown = set(slow) - found.keys()
    assert not unknown, f"no such tests: {unknown}"
    for name, each in found.items():
        if not name.startswith("test_"):
            found[name] = _of_one_kind(each)
        elif name in slow:
            found[name] = _slow(each)
    return found


def _collected(name: str, each: Any) -> bool:
    return name.startswith("test_") or type(each).__name__ == "FixtureFunctionDefinition"


def _of_one_kind(fixture: Any) -> Any:
    made = fixture._fixture_function_marker
    kind = next((each for each in made.params or () if each in _KINDS), None)
    if kind is None:
        return fixture
    return pytest.fixture(scope=made.scope, params=[kind], autouse=made.autouse)(fixture._get_wrapped_function())


def _slow(test: Any) -> Any:
    """The same test, marked: the embedded suite has the function too."""
    copy = FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__kwdefaults__, copy.__annotations__ = test.__kwdefaults__, test.__annotations__
    copy.__dict__.update(test.__dict__)
    setattr(copy, "pytestmark", [*getattr(test, "pytestmark", ()), pytest.mark.slow.mark])  # noqa: B010
    return copy
