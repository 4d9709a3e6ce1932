"""Who may open a session: each kind is refused to a caller without rights, and its error is the store's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import PermissionDenied, RateLimited, StreamNotFound
from anabranch.security.guard import Holding, OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store


class Refusing(OpenGuard):
    """Refuses sessions, or one operation."""

    operation = ""
    sessions_max = 1_000_000
    held = 0

    def authorize(self, principal: Any, operation: Any, resource: str | None, *, verb: str = "") -> None:
        if operation == self.operation:
            raise PermissionDenied(f"{operation} on {resource}")

    def hold(self, principal: Any, what: Any, amount: int = 1) -> Holding:
        if what == "followers":
            if self.held >= self.sessions_max:
                raise RateLimited("too many", 1.0)
            self.held += 1
            return Holding(self._release)
        return Holding()

    def _release(self) -> None:
        self.held -= 1


KINDS: dict[str, Callable[[Store, ab.ReaderGroup], Any]] = {
    "a group reader": lambda store, group: group.reader("r"),
    "notifications": lambda store, group: store.notifications.read("s/a"),
    "a listener": lambda store, group: store.notifications.listen(print, "s/a"),
    "a listener of a group": lambda store, group: group.on_readers(print),
}


@pytest.fixture
def guard() -> Refusing:
    return Refusing()


@pytest.fixture
def store(tmp_path: Path, guard: Refusing) -> Iterator[Store]:
    with ab.connect(tmp_path / "river", create=True) as embedded:
        embedded.scopes.create("s")
        embedded.streams.create("s/a")
        embedded.groups.open("s/g", streams="s/a")
        with FlightService(Broker(embedded, guard)) as service:
            with ab.connect(f"anabranch://127.0.0.1:{service.port}") as remote:
                yield remote
            service.drain(5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_needs_the_right_to_read(store: Store, guard: Refusing, kind: str) -> None:
    group = store.groups.open("s/g")
    guard.operation = "read"
    with pytest.raises(PermissionDenied):
        KINDS[kind](store, group)


def test_a_group_reader_needs_the_right_to_write_its_positions(store: Store, guard: Refusing) -> None:
    guard.operation = "write"
    with pytest.raises(PermissionDenied, match="s/g"):
        store.groups.open("s/g").reader("r")


@pytest.mark.parametrize("kind", KINDS)
def test_open_sessions_are_limited_and_given_back(store: Store, guard: Refusing, kind: str) -> None:
    guard.sessions_max = 1
    opened = KINDS[kind](store, store.groups.open("s/g"))
    with pytest.raises(RateLimited):
        store.transaction()
    opened.close()
    with store.transaction() as transaction:
        transaction.writer("s/a").write(b"1")


def test_a_synchronizer_does_not_reach_the_states_of_groups(store: Store, guard: Refusing) -> None:
    with pytest.raises(ab.errors.InvalidArgument, match="not a revisioned stream of an application"):
        store.shared.revisioned("s/_group-g").latest()
    with pytest.raises(StreamNotFound):
        store.notifications.read("s/nothing")
