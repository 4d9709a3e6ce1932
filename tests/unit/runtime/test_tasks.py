"""The conditions of real threads: Ctrl-C may strike anywhere in them."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest

from anabranch.runtime.tasks import ThreadTasks


class _Strike:
    """A trace function that raises KeyboardInterrupt before the `at`-th instruction of `threading.Condition.wait`."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.struck = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is threading.Condition.wait.__code__:
            frame.f_trace_opcodes = True
            return self._inside
        return None

    def _inside(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and not self.struck:
            if self._left == 0:
                self.struck = True
                raise KeyboardInterrupt
            self._left -= 1
        return self._inside


def test_an_interrupt_at_any_step_of_waiting_leaves_as_itself_and_leaves_the_lock_free() -> None:
    steps = 0
    while _wait_struck(condition := ThreadTasks().condition(), _Strike(steps)):
        _is_free(condition)
        steps += 1
    assert steps > 40  # it went through all of them


def _wait_struck(condition: Any, strike: _Strike) -> bool:
    """False if waiting was over before the strike."""
    before = sys.gettrace()
    try:
        with condition:
            sys.settrace(strike)
            condition.wait(0.001)
    except KeyboardInterrupt:
        assert strike.struck
    finally:
        sys.settrace(before)
    return strike.struck


def _is_free(condition: Any) -> None:
    taken = threading.Event()

    def take() -> None:
        with condition:
            taken.set()

    threading.Thread(target=take, daemon=True).start()
    if not taken.wait(10):
        pytest.fail("the lock is still taken")


def test_a_task_does_not_wait_for_its_own_end() -> None:
    begin = threading.Event()
    found: list[bool] = []

    def close_what_called_it() -> None:
        begin.wait()
        found.append(task.join())

    task = ThreadTasks().spawn("callback", close_what_called_it)
    begin.set()
    assert task.join()
    assert found == [False]


def test_a_pause_beyond_what_the_system_can_wait_is_no_error() -> None:
    pausing = threading.Thread(target=ThreadTasks().sleep, args=(1e18,), daemon=True)
    pausing.start()
    pausing.join(0.05)
    assert pausing.is_alive()
