"""Ctrl-C waits for the end of what must be done whole."""

from __future__ import annotations

import signal
import threading

import pytest

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
