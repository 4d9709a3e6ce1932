"""What is reported of the segments that a statement reads."""

from __future__ import annotations

from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.segment_range import RangesBetween, SegmentRange
from anabranch.spark.pipelines.backlog import segment_progress

NAME, STREAM = StreamName.parse("iot/sensors"), StreamId(7)


def cut(*positions: int) -> StreamCut:
    return StreamCut.of(STREAM, {SegmentId(0, number): position for number, position in enumerate(positions)})


def unread(start: StreamCut, **counts: int) -> RangesBetween:
    ranges = tuple(SegmentRange(SegmentId(0, int(name[1:])), 0, count, count * 10) for name, count in counts.items())
    return RangesBetween(STREAM, start, start, ranges)


def test_segments_are_compared_with_the_foremost_one() -> None:
    reached = cut(5, 6, 0)
    times = {SegmentId(0, 0): Micros(9_500_000), SegmentId(0, 1): Micros(12_000_000)}
    first, second, third, successor = segment_progress(NAME, reached, unread(reached, s0=3, s2=4, s3=8), times)
    assert first == {"stream": "iot/sensors", "segment": "0.0", "lag": 3, "event_time_us": 9_500_000, "skew_s": 2.5}
    assert (second["lag"], second["skew_s"]) == (0, 0.0)
    assert (third["lag"], third["event_time_us"], third["skew_s"]) == (4, None, None), "nothing of it was read"
    assert (successor["segment"], successor["lag"]) == ("0.3", 8), "a successor that is not in the cut yet"


def test_of_many_segments_the_furthest_behind_are_reported() -> None:
    reached = cut(*([1] * 150))
    times = {SegmentId(0, number): Micros(number * 1_000_000) for number in range(150)}
    found = segment_progress(NAME, reached, unread(reached), times)
    assert [each["segment"] for each in found] == [f"0.{number}" for number in range(100)]
    assert [each["skew_s"] for each in found[:2]] == [149.0, 148.0]


def test_without_event_times_those_with_the_most_unread_events_are_reported() -> None:
    reached = cut(*([1] * 120))
    behind = {f"s{number}": number + 1 for number in range(20, 120)}
    found = segment_progress(NAME, reached, unread(reached, **behind), {})
    assert [each["segment"] for each in found] == [f"0.{number}" for number in range(20, 120)]
    assert all(each["skew_s"] is None for each in found)
