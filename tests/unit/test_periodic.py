"""Work in the background goes on, whatever a round of it meets."""

from __future__ import annotations

import logging

import pytest

from anabranch.errors import AnabranchError, DiskFull
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from tests.waiting import until


@pytest.mark.parametrize("error", [DiskFull("no space is left"), ValueError("unforeseen")])
def test_a_round_that_fails_is_told_and_the_next_one_is_made(
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
