"""A retry policy decides when to try again; it takes time, chance and pauses from the ports."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from anabranch.errors import AppendUncertain, StoreUnavailable
from anabranch.runtime.log_events import CATALOG_RETRIED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import RetryPolicy
from anabranch.runtime.tasks import ThreadTasks

POLICY = RetryPolicy(pause_s_min=1, pause_s_max=10, jitter=0, attempts_max=6, errors=(StoreUnavailable,))


class Time(ThreadTasks):
    """A clock that only pauses move on, and randomness of one value."""

    def __init__(self, chance: float = 1.0) -> None:
        self.pauses: list[float] = []
        self._chance = chance

    def now(self) -> int:
        raise AssertionError("pauses are measured by the monotonic clock")

    def monotonic(self) -> float:
        return 100 + sum(self.pauses)

    def bits(self, count: int) -> int:
        return int(self._chance * ((1 << count) - 1))

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    @property
    def runtime(self) -> Runtime:
        return Runtime(clock=self, ids=self, tasks=self)  # type: ignore[arg-type]


def failing(times: int, error: Exception) -> list[Exception | None]:
    return [error] * times + [None]


def call(policy: RetryPolicy, outcomes: list[Exception | None], time: Time) -> int:
    def act() -> int:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return 7

    return policy.call(time.runtime, act)


def test_pauses_double_up_to_their_maximum() -> None:
    time = Time()
    assert call(POLICY, failing(5, StoreUnavailable("away")), time) == 7
    assert time.pauses == [1, 2, 4, 8, 10]


def test_the_last_attempt_raises_its_own_error_without_a_pause() -> None:
    time, outcomes = Time(), failing(6, StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        call(POLICY, outcomes, time)
    assert len(time.pauses) == 5 and outcomes == [None]


def test_another_error_is_raised_at_once() -> None:
    time = Time()
    with pytest.raises(KeyError):
        call(POLICY, failing(1, KeyError("bug")), time)
    assert time.pauses == []


@pytest.mark.parametrize(("chance", "pauses"), [(0.0, [0.5, 1.0, 2.0]), (1.0, [1.0, 2.0, 4.0])])
def test_jitter_is_a_share_of_the_pause_taken_from_the_port(chance: float, pauses: list[float]) -> None:
    time = Time(chance)
    call(replace(POLICY, jitter=0.5), failing(3, StoreUnavailable("away")), time)
    assert time.pauses == pytest.approx(pauses, rel=1e-3)


def test_a_pause_ends_at_the_deadline_and_one_attempt_follows() -> None:
    time, outcomes = Time(), failing(9, StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        call(replace(POLICY, attempts_max=None, deadline_s=5), outcomes, time)
    assert time.pauses == [1, 2, 2] and len(outcomes) == 10 - 4


def test_a_deadline_that_has_passed_leaves_the_least_number_of_attempts() -> None:
    time = Time()
    policy = replace(POLICY, deadline_s=0, attempts_min=2)
    assert call(policy, failing(1, StoreUnavailable("away")), time) == 7
    with pytest.raises(StoreUnavailable):
        call(policy, failing(2, StoreUnavailable("away")), time)


def test_each_retry_is_logged_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    error = AppendUncertain("lost")
    with caplog.at_level(logging.WARNING, "anabranch"):
        call(replace(POLICY, errors=(AppendUncertain,), event=CATALOG_RETRIED), failing(1, error), Time())
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("anabranch.catalog", "WARNING")
    assert vars(record)["event"] == "catalog_retried" and vars(record)["pause_s"] == 1
    assert vars(record)["error"] is error and "lost" in record.getMessage()
