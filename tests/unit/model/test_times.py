"""How times are taken: zones, units, and what is said of guesses."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.model.times import TimeRules, TimeWarning, is_plausible, plausible_unit, reset_warnings, to_micros

NAIVE = datetime(2026, 7, 1, 12)  # noqa: DTZ001
NOON = int(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp() * 1e6)
HOUR = 3_600_000_000


@pytest.fixture(autouse=True)
def unwarned() -> Iterator[None]:
    reset_warnings()
    yield
    reset_warnings()


def test_a_time_without_a_zone_is_utc_and_the_process_is_warned_once() -> None:
    with pytest.warns(TimeWarning, match="taken as UTC") as caught:
        assert to_micros(NAIVE) == to_micros("2026-07-01T12:00:00") == NOON
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the warning points at the caller"


def test_nothing_is_said_where_the_zone_is_known() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert to_micros(NAIVE, TimeRules("UTC")) == NOON
        assert to_micros("2026-07-01T12:00", TimeRules("Europe/Berlin")) == NOON - 2 * HOUR
        assert to_micros("2026-07-01T12:00+01:00", TimeRules("Europe/Berlin")) == NOON - HOUR
        assert to_micros(NOON) == NOON


def test_times_without_a_zone_can_be_refused() -> None:
    with pytest.raises(InvalidArgument, match="has no zone"):
        to_micros(NAIVE, TimeRules("refuse"))
    with pytest.raises(InvalidArgument, match="unknown time zone 'Mars/Olympus'"):
        ab.Settings(time_zone="Mars/Olympus")
    with pytest.raises(InvalidArgument, match="unknown time zone"):
        ab.Settings(time_zone="../../etc/passwd")


@pytest.mark.parametrize("text", ["2026-03-29T02:30:00", "2026-10-25T02:30:00"])
def test_a_local_time_that_is_skipped_or_repeated_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="skipped or repeated in Europe/Berlin"):
        to_micros(text, TimeRules("Europe/Berlin"))


def test_digits_beyond_microseconds_are_refused_or_cut_off() -> None:
    assert to_micros("2026-07-01T12:00:00.000001000Z") == NOON + 1
    with pytest.raises(InvalidArgument, match="digits beyond µs"):
        to_micros("2026-07-01T12:00:00.0000015Z")
    assert to_micros("2026-07-01T12:00:00.0000015Z", TimeRules(truncate=True)) == NOON + 1


def test_an_integer_that_looks_like_another_unit_is_refused_with_the_guess() -> None:
    for per_second, unit in ((1, "seconds"), (10**3, "milliseconds"), (10**9, "nanoseconds")):
        with pytest.raises(InvalidArgument, match=rf"looks like {unit} \(2026-07-01T12:00:00Z\).*implausible_times"):
            to_micros(NOON * per_second // 10**6)
    assert [to_micros(each) for each in (0, -5, 10**6, NOON)] == [0, -5, 10**6, NOON]


def test_an_integer_that_looks_like_another_unit_is_warned_of_once_where_it_is_accepted() -> None:
    seconds = NOON // 1_000_000
    accepting = TimeRules(implausible=True)
    with pytest.warns(TimeWarning, match=rf"{seconds} was taken as µs.*as s it is 2026-07-01T12:00:00Z") as caught:
        assert [to_micros(seconds, accepting), to_micros(seconds, accepting)] == [seconds] * 2
    assert len(caught) == 1
    assert [plausible_unit(NOON * 1_000 // each) for each in (10**9, 10**6, 10**3, 1)] == ["s", "ms", None, "ns"]
    assert is_plausible(NOON)
    assert plausible_unit(5) is None


@pytest.mark.process
def test_a_program_is_warned_where_it_writes() -> None:
    program = (
        "import anabranch as ab, datetime as dt, pyarrow as pa\n"
        "with ab.connect('memory://') as store:\n"
        "    store.scopes.create('a')\n"
        "    store.streams.create('a/b', schema=pa.schema([('at', pa.timestamp('us', 'UTC'))]), time='at')\n"
        "    with store.writer('a/b') as writer:\n"
        "        for day in (1, 2):\n"
        "            writer.write({'at': dt.datetime(2026, 1, day)}).result()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.count("TimeWarning: a time without a zone was taken as UTC") == 1
    assert done.stderr.startswith("<string>:7: ")
