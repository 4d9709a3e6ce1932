"""A listener that is closed tells the broker what it has processed, however soon after it that is."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import anabranch as ab
from anabranch.remote.session import RemoteSession
from anabranch.store import Store
from anabranch.wire.frames import Frame
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def slow_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is slow to ask for the next notification, which also tells that the last one was processed."""
    request = RemoteSession.request

    def late(self: RemoteSession, verb: str, fields: dict[str, Any], **options: Any) -> Frame:
        if fields.get("handled") is not None:
            time.sleep(0.5)
        return request(self, verb, fields, **options)

    monkeypatch.setattr(RemoteSession, "request", late)


@pytest.fixture
def listened(remote: Store, embedded: Store) -> Store:
    embedded.scopes.create("s")
    embedded.streams.create("s/a")
    return remote


def scales(told: list[ab.Notification]) -> list[int | None]:
    return [each.segments for each in told if each.kind == "scaled"]


def heard_next(store: Store, count: int) -> list[int | None]:
    """What the next listener of the name hears of the stream being scaled, when `count` notifications have come."""
    told: list[ab.Notification] = []
    again = store.notifications.listen(told.append, "s/a", name="dash")
    until(lambda: len(told) >= count, PATIENCE_S)
    again.close()
    return scales(told)


def test_what_was_processed_just_before_is_not_delivered_again(listened: Store, slow_to_ask: None) -> None:
    told: list[ab.Notification] = []
    listener = listened.notifications.listen(told.append, "s/a", name="dash")
    until(lambda: told, PATIENCE_S)
    listened.streams.scale("s/a", 2)
    until(lambda: listener.delivered == 2, PATIENCE_S)
    listener.close()
    listened.streams.scale("s/a", 3)
    assert heard_next(listened, 1) == [3]


def test_a_call_in_progress_is_waited_for_and_counts(listened: Store) -> None:
    entered, leave = threading.Event(), threading.Event()

    def handle(each: ab.Notification) -> None:
        if each.kind == "scaled":
            entered.set()
            leave.wait(PATIENCE_S)

    listener = listened.notifications.listen(handle, "s/a", name="dash")
    until(lambda: listener.delivered == 1, PATIENCE_S)
    listened.streams.scale("s/a", 2)
    assert entered.wait(PATIENCE_S)
    threading.Timer(0.3, leave.set).start()
    listener.close()
    assert listener.delivered == 2
    listened.streams.scale("s/a", 3)
    assert heard_next(listened, 1) == [3]


def test_a_handler_may_unsubscribe_and_what_it_was_given_counts(listened: Store, slow_to_ask: None) -> None:
    told: list[ab.Notification] = []

    def handle(each: ab.Notification) -> None:
        told.append(each)
        if each.kind == "scaled":
            listener()

    listener = listened.notifications.listen(handle, "s/a", name="dash")
    until(lambda: told, PATIENCE_S)
    listened.streams.scale("s/a", 2)
    until(lambda: len(told) == 2, PATIENCE_S)
    listener.close()
    listened.streams.scale("s/a", 3)
    assert scales(told) == [2] and heard_next(listened, 1) == [3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_handler_that_is_killed_gets_its_notification_again(listened: Store) -> None:
    def handle(each: ab.Notification) -> None:
        if each.kind == "scaled":
            raise SystemExit

    listener = listened.notifications.listen(handle, "s/a", name="dash")
    until(lambda: listener.delivered == 1, PATIENCE_S)
    listened.streams.scale("s/a", 2)
    time.sleep(0.3)
    listener.close()
    assert heard_next(listened, 1) == [2]
