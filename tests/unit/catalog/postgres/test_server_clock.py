"""The clock of a database server, as a process knows it from readings that arrive late."""

from __future__ import annotations

import pytest

from anabranch.catalog.postgres.clock import ServerClock
from anabranch.testing.clock import ManualClock
from tests.store.kit import SECOND

SERVER_US = 1_800_000_000 * SECOND


@pytest.fixture
def process() -> ManualClock:
    return ManualClock()


@pytest.fixture
def server(process: ManualClock) -> ServerClock:
    clock = ServerClock(process)
    clock.observe(SERVER_US)
    return clock


def test_between_readings_it_goes_on_with_the_monotonic_clock(process: ManualClock, server: ServerClock) -> None:
    process.pass_time(5 * SECOND)
    assert server.now() == SERVER_US + 5 * SECOND
    assert server.monotonic() == process.monotonic()


def test_a_reading_is_due_at_first_and_a_second_after_the_last(process: ManualClock) -> None:
    clock = ServerClock(process)
    assert clock.due
    clock.observe(SERVER_US)
    assert not clock.due
    process.pass_time(SECOND)
    assert clock.due


def test_a_reading_that_arrives_late_does_not_set_it_back(process: ManualClock, server: ServerClock) -> None:
    process.pass_time(10 * SECOND)
    server.observe(SERVER_US + 7 * SECOND)
    assert server.now() == SERVER_US + 10 * SECOND
    assert not server.due


def test_a_reading_that_is_ahead_counts_at_once(process: ManualClock, server: ServerClock) -> None:
    process.pass_time(10 * SECOND)  # without the hour for which the machine slept
    server.observe(SERVER_US + 3610 * SECOND)
    assert server.now() == SERVER_US + 3610 * SECOND


def test_a_server_whose_clock_was_set_back_is_followed_after_a_minute(
    process: ManualClock, server: ServerClock
) -> None:
    passed = 0
    for passed in range(SECOND, 61 * SECOND, SECOND):
        process.pass_time(SECOND)
        server.observe(SERVER_US - 100 * SECOND + passed)
    assert server.now() == SERVER_US - 100 * SECOND + passed
