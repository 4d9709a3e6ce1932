"""Ctrl-C waits for the end of what must be done whole."""

from __future__ import annotations

import signal
import threading
from typing import Any

import pytest

from anabranch.runtime import interrupts
from anabranch.runtime.interrupts import Undisturbed


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_takes_effect_at_the_end() -> None:
    done = []

    def work() -> None:
        with Undisturbed():
            interrupt()
            done.append("the rest")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest"]
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_without_ctrl_c_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Undisturbed():
        pass
    assert signal.getsignal(signal.SIGINT) is before


def test_an_alarm_waits_too() -> None:
    done = []

    def ring(number: int, frame: object) -> None:
        raise TimeoutError

    def work() -> None:
        with Undisturbed():
            signal.raise_signal(signal.SIGALRM)
            done.append("the rest")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        with pytest.raises(TimeoutError):
            work()
        assert done == ["the rest"] and signal.getsignal(signal.SIGALRM) is ring
    finally:
        signal.signal(signal.SIGALRM, before)


def test_ctrl_c_as_soon_as_it_can_leaves_no_other_signal_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def tell(number: int, frame: object) -> None:
        told.append(number)

    def restored(number: int, handler: Any) -> None:
        signal.signal(number, handler)
        if number == signal.SIGINT and handler is before:
            interrupt()

    before, terminate = signal.getsignal(signal.SIGINT), signal.signal(signal.SIGTERM, tell)
    try:
        monkeypatch.setattr(interrupts, "signal", restored)
        with pytest.raises(KeyboardInterrupt), Undisturbed():
            signal.raise_signal(signal.SIGTERM)
        assert told == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is tell
    finally:
        signal.signal(signal.SIGTERM, terminate)


def test_nested_stretches_end_with_the_outermost() -> None:
    done = []

    def work() -> None:
        with Undisturbed():
            with Undisturbed():
                interrupt()
                done.append("inner")
            done.append("outer")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner", "outer"]


def test_an_error_inside_stays_the_cause_of_what_ctrl_c_raises() -> None:
    def work() -> None:
        with Undisturbed():
            interrupt()
            raise ValueError("inside")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


def test_a_handler_that_was_set_inside_stays() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def own(number: int, frame: object) -> None:
        return

    try:
        with Undisturbed():
            signal.signal(signal.SIGTERM, own)
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


def test_other_threads_need_no_protection() -> None:
    seen = []

    def work() -> None:
        with Undisturbed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
