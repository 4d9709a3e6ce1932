"""Work in the background goes on, whatever a round of it meets."""

from __future__ import annotations

import logging
import threading

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, DiskFull, LeaseExpired
from anabranch.log.upkeep.maintenance import Maintenance
from anabranch.model.ids import Micros
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from tests.waiting import until


@pytest.mark.parametrize("error", [DiskFull("no space is left"), ValueError("unforeseen")])
def test_a_round_that_fails_is_reported_and_the_next_one_is_made(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    failing = [error]
    failures: list[object] = []

    def work() -> None:
        failures.append(periodic.failure)
        if failing:
            raise failing.pop()

    periodic = Periodic(Runtime(), "upkeep", 0.001, work)
    with caplog.at_level(logging.WARNING):
        periodic.start()
        until(lambda: periodic.rounds > 2)
        periodic.close()
    assert failures[0] is None and failures[2] is None
    assert isinstance(failures[1], AnabranchError) and str(error) in str(failures[1])
    assert periodic.fault is (None if isinstance(error, AnabranchError) else error)
    assert "upkeep failed and will be tried again" in caplog.text


class Ended(Exception):
    """The work is over."""


def test_a_loop_ends_on_the_errors_it_was_given_and_keeps_the_last(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        if periodic.rounds == 2:
            raise Ended

    periodic = Periodic(Runtime(), "heartbeat", 0.001, work, at_once=True, ends_on=(Ended,))
    with caplog.at_level(logging.DEBUG, "anabranch"), periodic:
        until(lambda: periodic.ended_by)
    assert isinstance(periodic.ended_by, Ended) and periodic.rounds == 2
    assert caplog.records == []


def test_the_first_round_is_made_at_once_where_asked_and_a_waiting_loop_can_be_woken() -> None:
    rounds: list[int] = []
    with Periodic(Runtime(), "renewal", 3600, lambda: rounds.append(1), at_once=True) as periodic:
        until(lambda: len(rounds) == 1)
        periodic.wake()
        until(lambda: len(rounds) == 2)
    assert len(rounds) == 2


def test_a_stopped_loop_starts_again_and_a_closed_one_does_not() -> None:
    rounds: list[int] = []

    def work() -> None:
        rounds.append(1)
        periodic.stop()

    periodic = Periodic(Runtime(), "renewal", 3600, work, at_once=True)
    for count in (1, 2, 3):
        periodic.start()
        until(lambda count=count: len(rounds) == count)  # type: ignore[misc]
        until(lambda: not periodic._running)
    assert periodic.close()
    periodic.start()
    assert periodic._task is not None and periodic._task.join(0) and len(rounds) == 3


def test_a_round_that_does_not_end_in_time_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    began, go_on = threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        go_on.wait()

    periodic = Periodic(Runtime(), "upkeep", 3600, work, at_once=True)
    periodic.start()
    began.wait()
    assert not periodic.close(timeout_s=0.01)
    assert [vars(each)["event"] for each in caplog.records] == ["background_stuck"]
    go_on.set()
    assert periodic.close()


def test_a_loop_that_its_own_work_closes_does_not_wait_for_itself(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[bool] = []
    periodic = Periodic(Runtime(), "upkeep", 3600, lambda: closed.append(periodic.close()), at_once=True)
    periodic.start()
    until(lambda: closed)
    assert closed == [False] and caplog.records == []
    assert periodic.close()


def test_a_failure_that_lasts_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def work() -> None:
        if periodic.rounds < 20:
            raise DiskFull("no space is left")

    periodic = Periodic(Runtime(), "upkeep", 0.001, work)
    with caplog.at_level(logging.INFO, "anabranch"), periodic:
        until(lambda: periodic.rounds > 20)
    events = [vars(each)["event"] for each in caplog.records]
    assert events == ["background_failed"] * 5 + ["background_recovered"]  # failures 1, 2, 4, 8 and 16
    assert vars(caplog.records[-1])["failures"] == 20


class StoppedClock:
    """A clock that a test sets by hand."""

    def now(self) -> Micros:
        return Micros(0)

    def monotonic(self) -> float:
        return 100.0


def test_rounds_are_made_though_the_clock_stands_still() -> None:
    with Periodic(Runtime(clock=StoppedClock()), "heartbeat", 0.001, lambda: None) as periodic:
        until(lambda: periodic.rounds > 2)


@pytest.mark.parametrize("period_s", [1e10, 1e12])
def test_a_loop_of_a_period_beyond_what_threads_can_wait_goes_on(period_s: float) -> None:
    with Periodic(Runtime(), "heartbeat", period_s, lambda: None) as periodic:
        for rounds in range(1, 4):
            periodic.wake()
            until(lambda rounds=rounds: periodic.rounds >= rounds)  # type: ignore[misc]
        assert periodic.close(period_s)


def test_a_round_asked_for_at_once_is_made_though_the_loop_is_closed_at_once() -> None:
    for _ in range(50):
        rounds: list[int] = []
        with Periodic(Runtime(), "readers", 3600, lambda rounds=rounds: rounds.append(1), at_once=True):  # type: ignore[misc]
            pass
        assert rounds == [1]


def test_upkeep_goes_on_after_a_round_that_failed() -> None:
    def sweep() -> None:
        if maintenance.rounds == 0:
            raise LeaseExpired("it ran out")

    with ab.connect("memory://") as store:
        runtime = Runtime(settings=Settings(maintenance_s=0.001))
        with Maintenance(store.catalog, store.blobs, runtime, sweep=sweep) as maintenance:
            until(lambda: maintenance.rounds > 2)
