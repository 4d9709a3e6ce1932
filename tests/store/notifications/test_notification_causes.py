"""What policies do is told as what is done by hand, one notification for each change; and no kind of change goes untold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.catalog.port import Catalog
from anabranch.errors import StoreUnavailable
from anabranch.notifications.kinds import END_OF_DATA, GROUP_PASSED, GROUP_RESET, READERS
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.clocks import runtime_by
from tests.store.helpers import store_at
from tests.store.kit import SECOND
from tests.store.notifications.test_notifications import OPERATIONS
from tests.waiting import until

HOUR = 3600 * SECOND


class Timed:
    """A store with the stream s/a, whose clock the test moves."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        store.scopes.create("s")
        store.streams.create("s/a")

    def load(self, events: int, seconds: int) -> None:
        """So many events, and a look at the load so many seconds later."""
        with self.store.writer("s/a") as writer:
            for n in range(events):
                writer.write(b"x" * 10, key=f"k{n}")
        self.clock.pass_time(seconds * SECOND)
        self.store.rescale()

    def segments(self) -> int:
        return len(self.store.streams.view("s/a").current)


@pytest.fixture
def timed() -> Iterator[Timed]:
    clock = ManualClock()
    with ab.connect("memory://", runtime=runtime_by(clock)) as store:
        yield Timed(store, clock)


@pytest.mark.parametrize("policy", [ab.ByEventRate(2, factor=4, minimum=2), ab.ByByteRate(200, factor=4, minimum=2)])
def test_a_group_is_notified_of_scaling_by_load(timed: Timed, policy: ab.ByEventRate) -> None:
    told: list[ab.Notification] = []
    scaled: list[ab.Notification] = []
    timed.store.policies.scaling("s/a", policy)
    group = timed.store.groups.open("s/g", streams=["s/a"])
    group.on_segments(told.append)
    group.on_scaling(scaled.append)
    counts = [timed.segments()]
    for events, times, seconds in ((100, 10, 10), (300, 6, 10), (1, 40, 60)):  # it splits, splits again, and merges
        for _ in range(times):
            timed.load(events, seconds)
            if timed.segments() != counts[-1]:
                counts.append(timed.segments())
    assert len(counts) > 3
    assert counts[-1] < max(counts)
    until(lambda: len(told) == len(counts) and len(scaled) == len(counts) - 1)
    assert [each.segments for each in told] == counts
    assert [len(each.detail["created"]) > 0 for each in scaled] == [True] * len(scaled)


@pytest.mark.parametrize("policy", [ab.RetainFor("2h"), ab.RetainBytes(60)])
def test_a_group_is_notified_of_truncation_by_retention(timed: Timed, policy: ab.Retention) -> None:
    told: list[ab.Notification] = []
    store = timed.store
    store.policies.retention("s/a", policy)
    store.groups.open("s/g", streams=["s/a"]).on_truncation(told.append)
    heads = []
    for _ in range(6):
        timed.load(1, 10)
        timed.clock.pass_time(HOUR)
        if store.retain().truncated:
            heads.append(str(store.cuts.head("s/a")))
    assert len(heads) > 1
    until(lambda: len(told) == len(heads))
    assert [each.detail["head"] for each in told] == heads


def test_imports_and_copies_are_notified_with_their_origin(tmp_path: Path) -> None:
    with store_at("sqlite", tmp_path) as store:
        store.streams.create("s/a")
        store.archives.create("s/a", tmp_path / "archive")
        before = list(store.notifications.read())[-1].id
        store.archives.import_(tmp_path / "archive", as_="s/b")
        store.archives.attach(tmp_path / "archive", as_="s/c")
        told = [each for each in store.notifications.read(after=before) if each.kind in ("imported", "attached")]
        assert [(each.kind, each.stream, each.detail["name"]) for each in told] == [
            ("imported", "s/b", "s/b"),
            ("attached", "s/c", "s/c"),
        ]
        assert all(str(tmp_path / "archive") in each.detail["place"] for each in told)


def test_every_kind_of_change_is_notified_and_documented() -> None:
    sources = Path(ab.__file__).parent.rglob("*.py")
    written = {
        kind
        for source in sources
        if "testing" not in source.parts
        for kind in re.findall(r'add_change\([^,]+, "([a-z ]+)"', source.read_text())
    }
    told = {each.kind for each in OPERATIONS.values()} | {"evolved", "checks"}
    assert written == told
    manual = (Path(ab.__file__).parents[2] / "docs" / "how-to" / "notifications.md").read_text()
    kinds = {*told, "imported", "attached", READERS, END_OF_DATA, GROUP_RESET, GROUP_PASSED}
    assert {kind for kind in kinds if f"`{kind}`" not in manual} == set()


# what a listener is told behind a fault


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("a fault of our own")])
def test_a_listener_retries_after_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    told: list[ab.Notification] = []
    monkeypatch.setattr("anabranch.limits.NOTIFICATION_RETRY_S", 0.01)
    with store_at("memory", tmp_path) as store:
        store.streams.create("s/a")
        listener = store.groups.open("s/g", streams=["s/a"]).on_segments(told.append)
        until(lambda: told)
        catalog: Catalog = store.notifications._publisher._catalog
        with monkeypatch.context() as patched:
            patched.setattr(store.notifications._publisher, "_catalog", Away(error))
            store.streams.scale("s/a", 3)
            until(lambda: listener.failures > 2)
            assert listener.failure is error
        assert store.notifications._publisher._catalog is catalog
        store.streams.scale("s/a", 2)
        until(lambda: len(told) == 3)
    assert [each.segments for each in told] == [1, 3, 2]


class Away:
    """A catalog that answers no question."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Callable[..., object]:
        raise self._error
