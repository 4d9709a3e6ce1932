"""Markers: when a source that is idle takes over the watermark of others, and what a checkpoint and an option keep."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ports import Runtime
from anabranch.spark.options import from_json_option, to_json_option
from anabranch.spark.source.markers import (
    ClockClosing,
    Idleness,
    MarkerOption,
    Markers,
    SourceTimes,
    WindowClosing,
    idle_watermark,
)
from anabranch.spark.source.offsets import Marker, SourceOffset
from anabranch.testing.clock import ManualClock

NOW, IDLE = 1_000, 100
CUT = StreamCut.of(StreamId(7), {SegmentId(0, 0): 3})


def source(newest: int | None, *, silent: int, delay: int = 0) -> SourceTimes:
    return SourceTimes(newest, NOW - silent, delay)


@pytest.mark.parametrize(
    ("own", "others", "expected"),
    [
        (source(10, silent=99), [source(500, silent=0)], None),  # it is not idle yet
        (source(10, silent=100), [source(500, silent=0)], 500),
        (source(10, silent=100), [source(500, silent=0, delay=30)], 470),
        (source(None, silent=100), [source(500, silent=0), source(300, silent=5)], 300),  # the least of the active
        (
            source(10, silent=100),
            [source(500, silent=0), source(300, silent=100)],
            500,
        ),  # an idle one holds nothing back
        (
            source(10, silent=100),
            [source(500, silent=0), source(None, silent=0)],
            None,
        ),  # one that is active has no time
        (source(600, silent=100), [source(500, silent=100), source(None, silent=900)], 600),  # all are idle
        (source(None, silent=100), [source(None, silent=100)], None),
    ],
)
def test_an_idle_source_follows_those_that_are_not(
    own: SourceTimes, others: list[SourceTimes], expected: int | None
) -> None:
    assert idle_watermark(own, others, idle_us=IDLE, now=NOW) == expected


def test_the_option_survives_its_text() -> None:
    for option in (
        MarkerOption(5),
        MarkerOption(5, WindowClosing(10, ((CUT, CUT), (CUT, None)))),
        MarkerOption(5, WindowClosing(10, ((CUT, CUT), (CUT, None)), by_append_time=True)),
        MarkerOption(5, clock=ClockClosing(30, 10, 3)),
        MarkerOption(5, idleness=Idleness(10, ((StreamId(1 << 62), 3),))),
        MarkerOption(5, ask_us=1_000),
    ):
        assert from_json_option(MarkerOption, "markers", to_json_option(option)) == option
    with pytest.raises(InvalidArgument, match="option 'markers' is JSON"):
        from_json_option(MarkerOption, "markers", "[]")


def test_an_offset_keeps_its_marker_and_one_without_keeps_its_text() -> None:
    offset = SourceOffset(StreamName("s", "in"), CUT, CUT)
    marked = offset.marked(Marker(2, -5))
    assert SourceOffset.from_json(marked.to_json()) == marked
    assert marked.at(CUT).marker == Marker(2, -5)
    assert list(offset.to_json()) == ["stream", "origin", "cut"]
    with pytest.raises(InvalidArgument, match="the checkpoint has no position"):
        SourceOffset.from_json({**offset.to_json(), "marker": "x"})


def newest(store: ab.Store) -> int:
    """The newest append time of the test's stream, in µs."""
    with store.reader("iot/plain") as reader:
        return max(time.value for time in reader.to_arrow().column("_appended"))


def test_windows_over_append_times_close_as_the_clock_passes_their_ends(tmp_path: Path) -> None:
    second = 1_000_000
    clock = ManualClock(1_700_000_003 * second)
    with ab.connect(tmp_path / "river", create=True, runtime=Runtime(clock=clock, catalog_clock=clock)) as store:
        store.scopes.create("iot")
        store.write("iot/plain", pa.table({"n": [1]}), create=True)
        appended = newest(store)
        tail = store.cuts.tail("iot/plain")
        offset = SourceOffset(StreamName.parse("iot/plain"), tail, tail)
        option = MarkerOption(2 * second, clock=ClockClosing(30 * second, 10 * second))

        def passed(markers: Markers, at: int, *, once: bool = False) -> list[int]:
            """The watermarks, in seconds after the event, that markers give until none is due."""
            clock.micros = appended + at * second
            found = []
            while (marker := markers.due(store, offset, once=once)) is not None:
                found.append((marker.time_us - option.delay_us - appended) // second)
            return found

        markers = Markers(option)
        assert [passed(markers, at) for at in (0, 8, 9, 18, 19, 31, 32, 1_000)] == [
            [],
            [],
            [7],
            [],
            [17],
            [27],
            [30],
            [],
        ]
        assert passed(Markers(option), 500) == [30], "after a restart"
        assert passed(Markers(option), 9, once=True) == [7]
        assert passed(Markers(MarkerOption(2 * second)), 500) == []
        store.write("iot/plain", pa.table({"n": [2]}))
        offset = offset.at(store.cuts.tail("iot/plain"))
        appended = newest(store)
        assert passed(markers, 40) == [30], "new events open windows again"


STEPS = st.lists(st.tuples(st.integers(0, 9_000_000), st.booleans()), min_size=1, max_size=15)
"""By how much the clock advances, and whether an event is appended then."""


@settings(max_examples=50)
@given(STEPS, st.integers(0, 3_000_000), st.integers(1, 5_000_000), st.integers(1, 4), st.integers(0, 5_000_000))
@example([(1_000_000, True), *[(900_000, False)] * 12], 500_000, 2_000_000, 3, 1_300_000)
def test_over_random_appends_each_window_closes_as_soon_as_the_clock_has_passed_it_and_not_before(
    steps: list[tuple[int, bool]], delay_us: int, step_us: int, slides: int, start: int
) -> None:
    size_us = step_us * slides
    start_us = start % step_us
    clock = ManualClock(1_700_000_003_000_000)
    with ab.connect("memory://", runtime=Runtime(clock=clock, catalog_clock=clock)) as store:
        store.scopes.create("iot")
        store.streams.create("iot/plain", schema=pa.schema([("n", pa.int64())]))
        head = store.cuts.head("iot/plain")
        offset = SourceOffset(StreamName.parse("iot/plain"), head, head)
        markers = Markers(MarkerOption(delay_us, clock=ClockClosing(size_us, step_us, start_us)))
        watermark, ends = -1, set[int]()  # how far Spark's is, and where windows with events end
        for passed_us, appends in steps:
            clock.pass_time(passed_us)
            if appends:
                store.write("iot/plain", pa.table({"n": [1]}))
                offset = offset.at(store.cuts.tail("iot/plain"))
                time = newest(store)
                watermark = max(watermark, time - delay_us)
                first = time - (time - start_us) % step_us + step_us
                ends |= set(range(first, first + size_us, step_us))
            while (marker := markers.due(store, offset)) is not None:
                assert marker.number == 1 if offset.marker is None else marker.number == offset.marker.number + 1
                assert marker.time_us - delay_us > watermark, "a marker closes windows"
                watermark = marker.time_us - delay_us
                offset = offset.marked(marker)
            now = clock.now()
            assert watermark <= now - delay_us, "events may still be appended to what is closed"
            assert all(end <= watermark for end in ends if end <= now - delay_us)
