"""Processes whose clocks disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from tests.store.kit import SECOND, HandClock


@pytest.mark.parametrize("late_s", [10, 3 * 3600])
def test_a_writer_whose_clock_is_late_commits_behind_the_horizon_of_another(tmp_path: Path, late_s: int) -> None:
    now = 1_700_000_000 * SECOND
    settings = Settings(inline_bytes_max=0)
    ahead = Runtime(clock=HandClock(now), settings=settings)
    behind = Runtime(clock=HandClock(now - late_s * SECOND), settings=settings)
    assert limits.HORIZON_US < 3 * 3600 * SECOND
    with (
        ab.connect(tmp_path / "river", runtime=ahead) as keeper,
        ab.connect(tmp_path / "river", runtime=behind) as late,
    ):
        keeper.streams.create_scope("s")
        keeper.streams.create("s/raw")
        assert keeper.collect(horizon_us=0).horizon == now
        with late.writer("s/raw") as writer:
            assert [writer.write(b"%d" % i).result().offset for i in range(3)] == [0, 1, 2]
        with keeper.writer("s/raw") as writer:
            assert writer.write(b"3").result().offset == 3
        with keeper.reader("s/raw") as reader:
            assert [event.body for event in reader] == [b"0", b"1", b"2", b"3"]
        # What the first try left behind is an orphan, and goes with the next collection but one.
        keeper.collect(horizon_us=0)
        assert list(keeper.check()) == []
