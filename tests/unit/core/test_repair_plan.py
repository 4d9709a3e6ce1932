"""A safe change is one with which fewer things are wrong and nothing is wrong that was not before."""

from __future__ import annotations

from dataclasses import replace

from anabranch.core.invariants import stream_violations
from anabranch.core.repair import repair_log, repair_stream
from anabranch.model.append import LogState
from anabranch.model.ids import LogId, Micros, SegmentId, StreamId
from anabranch.model.keyspace import FULL_KEY_RANGE
from anabranch.model.names import StreamName
from anabranch.model.schema import RAW
from anabranch.model.stream import Segment, Span, StreamInfo, StreamView

OLD, NEW, LOG, OTHER = SegmentId(0, 0), SegmentId(1, 1), LogId(1), LogId(2)


def scaled() -> StreamView:
    """A stream whose first segment was taken over by a second."""
    info = StreamInfo(StreamId(7), StreamName("a", "b"), RAW, 1, {}, Micros(0), False, 1, 1, 2)
    segments = {OLD: Segment(OLD, FULL_KEY_RANGE, 1, 0), NEW: Segment(NEW, FULL_KEY_RANGE, None, 0)}
    spans = {OLD: (Span(OLD, 0, LOG, 0, 5),), NEW: (Span(NEW, 0, OTHER, 0, None),)}
    logs = {LOG: LogState(LOG, info.id, 5, sealed=True), OTHER: LogState(OTHER, info.id, 3)}
    return StreamView(info, segments, spans, logs)


def test_a_sound_stream_is_left_alone() -> None:
    assert list(stream_violations(scaled())) == []
    assert repair_stream(scaled()) is None


def test_a_sealed_segment_that_follows_its_log_is_ended() -> None:
    view = scaled()
    following = replace(view, spans={**view.spans, OLD: (Span(OLD, 0, LOG, 0, None),)})
    mending = repair_stream(following)
    assert mending is not None
    assert mending.spans == view.spans[OLD]


def test_a_change_that_would_break_something_else_is_not_made() -> None:
    """The open segment follows the same log: to end the sealed one would seal the log under it."""
    view = scaled()
    shared = replace(view, spans={OLD: (Span(OLD, 0, OTHER, 0, None),), NEW: (Span(NEW, 0, OTHER, 0, None),)})
    assert [flaw.segment for flaw in stream_violations(shared)] == [OLD]
    assert repair_stream(shared) is None


def test_a_change_that_would_only_exchange_one_flaw_for_another_is_not_made() -> None:
    """The first span's offset is the row that is wrong: a head raised to it would lie behind the segment's end."""
    view = scaled()
    torn = replace(view, spans={**view.spans, OLD: (Span(OLD, 9, LOG, 5, 5), Span(OLD, 9, LOG, 7, 5))})
    flaws = set(stream_violations(torn))
    assert flaws
    assert repair_stream(torn) is None


def test_of_several_changes_those_that_help_are_made() -> None:
    view = scaled()
    shared = {OLD: (Span(OLD, 0, OTHER, 0, None),), NEW: (Span(NEW, 0, OTHER, 0, None),)}
    mending = repair_stream(replace(view, spans=shared, info=replace(view.info, next_number=1)))
    assert mending is not None
    assert mending.info is not None and mending.info.next_number == 2
    assert not mending.spans and not mending.logs


def test_a_log_with_nothing_wrong_is_left_alone() -> None:
    log = LogState(LOG, StreamId(7), 0)
    assert repair_log(log, [(StreamId(7), Span(OLD, 0, LOG, 0, None))], lambda position: ()) is None


def test_a_log_that_two_segments_follow_is_not_sealed() -> None:
    """It is open with two followers, which is wrong, but sealing it would refuse the right one."""
    log = LogState(LOG, StreamId(7), 0)
    spans = [(StreamId(7), Span(each, 0, LOG, 0, None)) for each in (OLD, NEW)]
    assert repair_log(log, spans, lambda position: ()) is None
