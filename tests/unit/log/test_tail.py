"""Waiting for new events: woken at once in the process, soon between processes, and cheap while idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from anabranch.catalog.port import Catalog
from anabranch.log.tail import Tail
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from tests.pressed import Pressed
from tests.waiting import PATIENCE_S, until, until_ended


class Token:
    """Of a catalog, only its token, which counts how often it is asked, and who is told of commits."""

    def __init__(self, *, tells: bool = False) -> None:
        self.tells = tells
        self.told: list[Callable[[], None]] = []
        self.value = 0
        self.asked = 0

    def token(self) -> int:
        self.asked += 1
        return self.value

    def on_change(self, changed: Callable[[], None]) -> bool:
        self.told.append(changed)
        return self.tells


def tail_of(token: Token, poll_us_max: int = 5_000) -> Tail:
    return Tail(cast("Catalog", token), Runtime(settings=Settings(tail_poll_us_max=poll_us_max)))


@contextmanager
def waiting(tail: Tail, count: int = 1) -> Iterator[Callable[[], list[bool]]]:
    """Threads that wait on the tail; the function joins them and gives their results."""
    results: list[Any] = []
    since = tail.generation()
    threads = [threading.Thread(target=lambda: results.append(tail.wait(since, 3600))) for _ in range(count)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert all(thread.is_alive() for thread in threads)

    def join() -> list[bool]:
        until_ended(*threads)
        return results

    yield join


def test_a_notification_wakes_everybody_long_before_the_next_poll() -> None:
    tail = tail_of(Token(), poll_us_max=3_600_000_000)
    with waiting(tail, 3) as join:
        tail.notify()
        assert join() == [True] * 3


def test_what_another_process_commits_wakes_everybody() -> None:
    token = Token()
    with waiting(tail_of(token), 3) as join:
        token.value += 1
        assert join() == [True] * 3


def test_nothing_committed_between_looking_and_waiting_is_missed() -> None:
    token = Token()
    tail = tail_of(token)
    since = tail.generation()
    token.value += 1
    assert tail.wait(since, 60)
    since = tail.generation()
    tail.notify()
    assert tail.wait(since, 0)


def test_one_waiter_polls_for_all_of_them() -> None:
    token = Token()
    tail = tail_of(token, poll_us_max=20_000)
    with waiting(tail, 8) as join:
        before, began = token.asked, time.monotonic()
        time.sleep(0.5)
        until(lambda: token.asked - before >= 5)
        # If all eight did, it would be eight times as often as every 20 ms.
        assert token.asked - before <= 50 + 1.5 * (time.monotonic() - began) / 0.02
        tail.notify()
        join()


def test_polling_goes_on_when_the_one_who_polls_leaves() -> None:
    token = Token()
    tail = tail_of(token)
    since = tail.generation()
    first = threading.Thread(target=lambda: tail.wait(since, 0.2))
    first.start()
    time.sleep(0.05)
    woken: list[bool] = []
    second = threading.Thread(target=lambda: woken.append(tail.wait(since, 3600)))
    second.start()
    until_ended(first)
    time.sleep(0.05)
    token.value += 1
    until_ended(second)
    assert woken == [True]


def test_polling_goes_on_where_ctrl_c_struck_when_it_had_just_begun() -> None:
    token = Token()
    tail = tail_of(token)
    since = tail.generation()
    tail._changed = Pressed()
    with pytest.raises(KeyboardInterrupt):
        tail.wait(since, PATIENCE_S)
    token.value += 1
    assert tail.wait(since, PATIENCE_S)


def test_waiting_ends_in_time_or_with_the_tail() -> None:
    tail = tail_of(Token())
    began = time.monotonic()
    assert not tail.wait(tail.generation(), 0.1)
    assert time.monotonic() - began > 0.09
    with waiting(tail, 2) as join:
        tail.close()
        tail.close()
        assert join() == [False] * 2
    assert not tail.wait(tail.generation())


def test_what_the_catalog_announces_wakes_everybody_before_the_next_poll() -> None:
    token = Token(tells=True)
    with waiting(tail_of(token, poll_us_max=3_600_000_000), 3) as join:
        until(lambda: token.asked > 20)  # the polls at the beginning are frequent
        token.value += 1
        (changed,) = token.told
        asked = token.asked
        changed()
        assert token.asked > asked
        assert join() == [True] * 3
