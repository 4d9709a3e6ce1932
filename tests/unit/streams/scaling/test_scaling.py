"""Scaling by load: constant loads settle, bursts find room soon, lulls are waited out, hot keys do no harm."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.catalog.state.load import LoadSample
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.model.policy import ByByteRate, ByEventRate, rate_from_json, rate_to_json
from anabranch.streams.scaling.plan import HOT, ScalingPace, load_of, thin_samples
from tests.simulation.scaling_command import Moment, Phase, Trace, main, simulate

HOUR = 3600.0


def run(policy: ByEventRate, *phases: Phase, every_s: float = 10.0) -> list[Moment]:
    return list(simulate(Trace(phases), policy, every_s=every_s))


@given(
    target=st.floats(1, 1e6),
    times=st.floats(0, 20),
    factor=st.integers(2, 8),
    minimum=st.integers(1, 8),
    share=st.floats(0, 0.9),
    low=st.floats(0, 0.8),
)
@settings(max_examples=20)
def test_a_constant_load_settles_and_stays_settled(
    target: float, times: float, factor: int, minimum: int, share: float, low: float
) -> None:
    policy = ByEventRate(target, factor, minimum)
    moments = run(policy, Phase(0, target * times, share, low, low + 0.2), Phase(4 * HOUR, 0), every_s=30.0)
    assert min(moment.segments for moment in moments) >= minimum
    assert sum(moment.segments for moment in moments[-1:]) <= max(minimum, 4 * times + 4)
    late = moments[len(moments) // 2 :]
    assert not any(moment.scaled for moment in late)
    assert late[-1].greatest <= HOT * target


def test_a_burst_is_split_within_minutes_and_a_short_lull_undoes_nothing() -> None:
    moments = run(
        ByEventRate(1000, 4, 2),
        Phase(0, 100),
        Phase(HOUR, 9000),
        Phase(HOUR + 1800, 100),
        Phase(HOUR + 2000, 9000),
        Phase(HOUR + 4000, 0),
    )
    by_time = {moment.seconds: moment for moment in moments}
    assert by_time[HOUR].segments == 2
    assert by_time[HOUR + 180].greatest <= 1000
    lull = [moment for moment in moments if HOUR + 1800 < moment.seconds <= HOUR + 2000]
    assert not any(moment.scaled for moment in lull)


def test_a_load_that_is_gone_is_merged_down_to_the_minimum_step_by_step() -> None:
    moments = run(ByEventRate(1000, 4, 3), Phase(0, 20_000), Phase(HOUR, 10), Phase(3 * HOUR, 0))
    counts = [moment.segments for moment in moments if moment.seconds > HOUR]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 3
    assert max(counts) > 15


def test_a_segment_rests_before_it_is_merged() -> None:
    trace = Trace((Phase(0, 20_000), Phase(HOUR, 10), Phase(5 * HOUR, 0)))
    pace = ScalingPace(merge_cooldown_us=2 * 3600 * 1_000_000)
    moments = list(simulate(trace, ByEventRate(1000, 4, 3), every_s=30.0, pace=pace))
    merges = [moment.seconds for moment in moments if moment.scaled and moment.seconds > HOUR]
    assert merges
    assert min(merges) >= 2 * HOUR
    assert all(later - earlier >= 2 * HOUR for earlier, later in pairwise(merges) if later - earlier > 300)


def test_one_hot_key_is_not_split_forever_nor_back_and_forth() -> None:
    place = 0.3
    moments = run(ByEventRate(1000, 2), Phase(0, 5000, 1.0, place, place + 1e-9), Phase(12 * HOUR, 0))
    assert max(moment.segments for moment in moments) <= 18
    late = moments[len(moments) // 2 :]
    assert not any(moment.scaled for moment in late)


def test_a_stream_below_its_minimum_gets_more_segments_without_any_load() -> None:
    from anabranch.streams.scaling.plan import plan_scaling
    from tests.simulation.scaling_command import _begin

    plan = plan_scaling(_begin(3), ByEventRate(1000, 2, 8), {}, ScalingPace())
    assert plan is not None
    assert 3 - len(plan.sealed) + len(plan.created) == 8
    assert plan_scaling(_begin(8), ByEventRate(1000, 2, 8), {}, ScalingPace()) is None


@given(gaps=st.lists(st.integers(1, 200), min_size=1, max_size=120), rate=st.integers(0, 50))
@settings(max_examples=40)
def test_thinned_samples_tell_the_age_and_rates_within_their_windows(gaps: list[int], rate: int) -> None:
    pace, policy = ScalingPace(), ByEventRate(1)
    kept: tuple[LoadSample, ...] = ()
    every: list[LoadSample] = []
    now = 0
    for gap in gaps:
        now += gap
        every.append(LoadSample(Micros(now * 1_000_000), now * rate, 0))
        kept = thin_samples((*kept, every[-1]), pace)
    told, whole = load_of(kept, policy, pace), load_of(every, policy, pace)
    assert told.age_us == whole.age_us
    assert (told.short is None, told.long is None) == (whole.short is None, whole.long is None)
    for found in (told.short, told.long):
        assert found is None or found == pytest.approx(rate)
    assert len(kept) <= 1 + 60 + 12


def test_bytes_may_be_written_as_people_write_them_and_nonsense_is_refused() -> None:
    assert ByByteRate("2MB", 4).target == 2_000_000
    for policy in (ByByteRate("2MB", 4, 3), ByEventRate(5.5)):
        assert rate_from_json(rate_to_json(policy)) == policy
    for wrong in (
        {"target": 0},
        {"target": math.nan},
        {"target": math.inf},
        {"target": 1, "factor": 1},
        {"target": 1, "minimum": 0},
    ):
        with pytest.raises(InvalidArgument):
            ByEventRate(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="2MB"[:1]):
        ab.ByByteRate("2 turtles")


def test_a_trace_is_plotted_and_a_broken_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("seconds,rate\n0,400\n600,9000\n1800,400\n7200,0\n")
    options = ["--trace", str(trace), "--events-per-second", "1000", "--minimum", "2", "--factor", "4"]
    assert main(options) == 0
    told = capsys.readouterr().out
    assert "12 segments at most" in told
    for broken, line in (
        ("seconds,rate\n0,1\n0,2\n", "line 3"),
        ("seconds,rate\n0,x\n", "line 2"),
        ("seconds,rate\n0,inf\n9,1\n", "line 2"),
        ("seconds,rate\nnan,1\n9,1\n", "line 2"),
        ("a,b\n", "columns"),
    ):
        trace.write_text(broken)
        assert main(options) == 2
        assert line in capsys.readouterr().err
    trace.write_text("seconds,rate\n0,400\n3,0\n")
    assert main(options) == 0  # shorter than the time between decisions
    for wrong in (["--every", "0"], ["--rows", "0"]):
        assert main([*options, *wrong]) == 2
        assert "above 0" in capsys.readouterr().err
