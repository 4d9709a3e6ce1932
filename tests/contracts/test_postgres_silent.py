"""PostgreSQL behind a network that swallows bytes: every wait ends, and the store goes on once the network is back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.catalog.postgres.pipeline import PipelineConnection
from anabranch.errors import AnabranchError, AppendUncertain, StoreUnavailable
from anabranch.runtime.settings import Settings
from tests.parameters import rest_is_slow
from tests.swallowing import Loss, SwallowingProxy
from tests.waiting import PATIENCE_S, until, until_ended

SETTINGS = Settings(catalog_lock_s=1.0, catalog_answer_s=PATIENCE_S)
LOST_S = 1.0  # in place of PATIENCE_S, while bytes are swallowed
LOSSES = [Loss.REQUESTS, Loss.ANSWERS, Loss.ALL]


class Line(SwallowingProxy):
    """A proxy that the store is short of patience with while it swallows bytes, and only then: a server that is just slow
    is waited for."""

    def lose(self, loss: Loss, *, after: int = 0) -> None:
        object.__setattr__(SETTINGS, "catalog_answer_s", LOST_S)
        super().lose(loss, after=after)

    def half_close(self) -> None:
        object.__setattr__(SETTINGS, "catalog_answer_s", LOST_S)
        super().half_close()

    def heal(self) -> None:
        super().heal()
        object.__setattr__(SETTINGS, "catalog_answer_s", PATIENCE_S)


@pytest.fixture
def proxy(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SwallowingProxy]:
    wait = PipelineConnection.wait

    def wait_no_longer(self: PipelineConnection, *arguments: Any, **options: Any) -> Any:
        """On connections from before, too."""
        self.answer_s = min(self.answer_s, SETTINGS.catalog_lock_s + SETTINGS.catalog_answer_s)
        return wait(self, *arguments, **options)

    monkeypatch.setattr(PipelineConnection, "wait", wait_no_longer)
    made = Line(urlsplit(url).port or 5432)
    yield made
    made.heal()
    made.close()


@pytest.fixture
def store(url: str, proxy: SwallowingProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ab.Store]:
    monkeypatch.setattr(limits, "WAKEUP_ANSWER_S", 1.0)
    monkeypatch.setattr(limits, "POSTGRES_CONNECT_S", 1)
    parts = urlsplit(url)
    through = url.replace(f":{parts.port}", f":{proxy.port}")
    assert through != url
    made = ab.connect(through, blobs=tmp_path, settings=SETTINGS, create=True)
    made.scopes.create("s")
    made.streams.create("s/a")
    yield made
    proxy.heal()
    outcome(made.close)  # which tells of the appends that were lost


def outcome(work: Callable[[], object]) -> object:
    """What the work returns or raises. A work that does not end fails the test."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except AnabranchError as exc:
            found.append(exc)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert found, "it still waits"
    return found[0]


def bodies(store: ab.Store) -> list[bytes]:
    with store.reader("s/a") as reader:
        return [event.body for event in reader]


@pytest.mark.slow
@pytest.mark.parametrize("loss", rest_is_slow(LOSSES), ids=lambda loss: loss.name.lower())
def test_an_append_that_is_never_answered_is_uncertain_and_settled_later(
    store: ab.Store, proxy: SwallowingProxy, loss: Loss
) -> None:
    writer = store.writer("s/a")
    writer.write(b"before").result()
    proxy.lose(loss)
    lost = writer.write(b"lost")
    assert isinstance(outcome(lost.result), AppendUncertain)
    assert proxy.swallowed
    proxy.heal()
    until(lambda: not isinstance(outcome(lambda: writer.write(b"after").result()), AnabranchError))
    found = bodies(store)
    assert (found[0], found.count(b"before"), found[-1]) == (b"before", 1, b"after")
    assert found.count(b"lost") <= 1
    assert list(store.check()) == []


@pytest.mark.parametrize("loss", rest_is_slow(LOSSES), ids=lambda loss: loss.name.lower())
def test_a_network_that_comes_back_before_the_deadline_loses_nothing(
    store: ab.Store, proxy: SwallowingProxy, loss: Loss
) -> None:
    writer = store.writer("s/a")
    writer.write(b"before").result()
    proxy.lose(loss)
    ack = writer.write(b"kept")
    thread = threading.Thread(target=lambda: outcome(ack.result), daemon=True)
    thread.start()
    until(lambda: proxy.swallowed)
    proxy.heal()  # what was swallowed stays lost: its connection is silent for ever
    assert not isinstance(outcome(ack.result), AnabranchError)
    assert bodies(store) == [b"before", b"kept"]


@pytest.mark.parametrize("loss", rest_is_slow(LOSSES), ids=lambda loss: loss.name.lower())
def test_a_read_and_a_change_that_are_never_answered_fail(store: ab.Store, proxy: SwallowingProxy, loss: Loss) -> None:
    store.writer("s/a").write(b"x").result()
    proxy.lose(loss)
    assert isinstance(outcome(lambda: bodies(store)), StoreUnavailable)
    assert isinstance(outcome(lambda: store.streams.create("s/b")), StoreUnavailable | AppendUncertain)
    proxy.heal()
    assert outcome(lambda: bodies(store)) == [b"x"]
    store.streams.create("s/b", exist_ok=True)


@pytest.mark.parametrize("after", rest_is_slow([1, 0, 100, 500]))
def test_a_connection_that_dies_while_it_is_made_is_given_up(
    store: ab.Store, proxy: SwallowingProxy, url: str, tmp_path: Path, after: int
) -> None:
    """After so many bytes: in the greeting, in the first statements, or in the look at the schema."""
    through = url.replace(f":{urlsplit(url).port}", f":{proxy.port}")
    proxy.lose(Loss.ANSWERS, after=after)
    found = outcome(lambda: ab.connect(through, blobs=tmp_path, settings=SETTINGS, create=True))
    assert isinstance(found, StoreUnavailable)
    proxy.heal()
    opened = outcome(lambda: ab.connect(through, blobs=tmp_path, settings=SETTINGS, create=True))
    assert isinstance(opened, ab.Store)
    opened.close()


@pytest.mark.slow
def test_a_server_that_ends_its_half_of_a_connection_is_lost(store: ab.Store, proxy: SwallowingProxy) -> None:
    writer = store.writer("s/a")
    writer.write(b"before").result()
    proxy.half_close()
    assert isinstance(outcome(writer.write(b"lost").result), AnabranchError)
    proxy.heal()
    until(lambda: not isinstance(outcome(lambda: writer.write(b"after").result()), AnabranchError))
    found = bodies(store)
    assert found[0] == b"before" and found[-1] == b"after" and found.count(b"lost") <= 1


@pytest.mark.parametrize("loss", rest_is_slow(LOSSES), ids=lambda loss: loss.name.lower())
def test_a_store_closes_while_nothing_is_answered(
    url: str, proxy: SwallowingProxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Loss
) -> None:
    monkeypatch.setattr(limits, "WAKEUP_ANSWER_S", 1.0)
    monkeypatch.setattr(limits, "POSTGRES_CONNECT_S", 1)
    through = url.replace(f":{urlsplit(url).port}", f":{proxy.port}")
    store = ab.connect(through, blobs=tmp_path, settings=SETTINGS, create=True)
    store.scopes.create("s")
    store.streams.create("s/a")
    writer, reader = store.writer("s/a"), store.reader("s/a", follow=True)
    writer.write(b"x").result()
    assert next(iter(reader)).body == b"x"
    proxy.lose(loss)
    writer.write(b"y")
    outcome(store.close)


def test_idle_connections_are_given_up_with_the_one_that_was_not_answered(
    store: ab.Store, proxy: SwallowingProxy
) -> None:
    """Else each of them would have to be waited for, one call after the other."""
    gate = threading.Barrier(4)

    def hold() -> None:
        with store.catalog.reading() as reading:
            gate.wait(PATIENCE_S)
            reading.horizon()

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    until_ended(*threads)
    proxy.lose(Loss.ALL)
    assert isinstance(outcome(lambda: bodies(store)), StoreUnavailable)
    pool = store.catalog._pool  # type: ignore[attr-defined]
    assert pool._idle == []  # though they lost nothing, and could be used once the network is back
    proxy.heal()
    assert outcome(lambda: bodies(store)) == []
