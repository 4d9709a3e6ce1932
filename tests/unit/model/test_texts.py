"""Names, pointers, cuts and times as text: they come back as they went, and what is malformed is said to be."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument, InvalidCut, InvalidName, InvalidPointer
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.names import StreamName, check_scope
from anabranch.model.pointer import EventPointer
from anabranch.model.times import to_datetime, to_micros

streams = st.integers(0, (1 << 63) - 1).map(StreamId)
segments = st.builds(SegmentId, st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 32) - 1))
offsets = st.integers(0, (1 << 63) - 1)
pointers = st.builds(EventPointer, streams, segments, offsets)
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}", fullmatch=True)


# pointers


@given(pointers)
def test_a_pointers_text_comes_back_as_the_pointer(pointer: EventPointer) -> None:
    text = str(pointer)
    assert len(text) == 48 and text == text.lower()
    assert EventPointer.parse(text) == pointer


@given(pointers, pointers)
def test_the_texts_of_pointers_sort_as_positions_do(one: EventPointer, other: EventPointer) -> None:
    assert (str(one) < str(other)) == (one < other)


@given(streams, segments, offsets, segments, offsets)
def test_within_a_stream_they_sort_by_segment_then_offset(
    stream: StreamId, a: SegmentId, i: int, b: SegmentId, j: int
) -> None:
    assert (str(EventPointer(stream, a, i)) < str(EventPointer(stream, b, j))) == ((a, i) < (b, j))


def test_the_example_of_the_formats_page_is_read() -> None:
    pointer = EventPointer.parse("2bcd55e1e5c62ee700000000000000010000000000000000")
    assert pointer == EventPointer(StreamId(0x2BCD55E1E5C62EE7), SegmentId(0, 1), 0)
    cut = StreamCut.parse("2bcd55e1e5c62ee7:0000000000000000@1:0000000000000001@1")
    assert cut.as_dict() == {SegmentId(0, 0): 1, SegmentId(0, 1): 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "head",
        "0" * 47,
        "0" * 49,
        "0" * 47 + "g",
        "A" * 48,
        " " + "0" * 47,
        "0" * 48 + "\n",
        "f" * 48,
        "8" + "0" * 47,
        "0" * 16 + "8" + "0" * 31,
        "0" * 32 + "8" + "0" * 15,
        b"0" * 48,
        None,
        7,
    ],
)
def test_a_malformed_pointer_is_refused(text: Any) -> None:
    with pytest.raises(InvalidPointer, match="not an event pointer"):
        EventPointer.parse(text)


# cuts


@given(streams, st.dictionaries(segments, offsets, min_size=1, max_size=5))
def test_a_cuts_text_comes_back_as_the_cut(stream: StreamId, places: dict[SegmentId, int]) -> None:
    cut = StreamCut.of(stream, places)
    assert StreamCut.parse(str(cut)) == cut
    assert cut.as_dict() == places
    assert [segment for segment, _ in cut] == sorted(places)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 16,
        "0" * 16 + ":",
        "0" * 16 + ":" + "0" * 16,
        "0" * 16 + ":" + "0" * 16 + "@",
        "0" * 16 + ":" + "0" * 16 + "@-1",
        "0" * 16 + ":" + "0" * 16 + "@1:",
        "0" * 16 + ":" + "0" * 15 + "@1",
        "0" * 16 + ":" + "0" * 16 + "@" + "1" * 17,
        "0" * 16 + ":" + "0" * 16 + "@" + "f" * 16,
        "f" * 16 + ":" + "0" * 16 + "@1",
        "0" * 16 + ":" + "f" * 16 + "@1",
        "0" * 16 + ":" + "0" * 16 + "@1:" + "0" * 16 + "@2",
        None,
        7,
    ],
)
def test_a_malformed_cut_is_refused(text: Any) -> None:
    with pytest.raises(InvalidCut):
        StreamCut.parse(text)


# names


@given(names, names)
def test_a_names_text_comes_back_as_the_name(scope: str, name: str) -> None:
    full = StreamName.parse(f"{scope}/{name}")
    assert (full.scope, full.name, str(full)) == (scope, name, f"{scope}/{name}")
    assert StreamName.parse(full) is full
    assert full.internal == (scope.startswith("_") or name.startswith("_"))
    assert check_scope(scope) == scope


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "/",
        "a/",
        "/b",
        "a/b/c",
        "a b/c",
        "a/b ",
        "a/-b",
        ".a/b",
        "é/b",
        "a/" + "b" * 129,
        "a/b\n",
        None,
        7,
        b"a/b",
    ],
)
def test_a_malformed_name_is_refused(text: Any) -> None:
    with pytest.raises(InvalidName, match=r"a letter \(a-z, A-Z\) or digit, then|expected a stream name as text"):
        StreamName.parse(text)


@pytest.mark.parametrize("scope", ["", "a/b", "-", "a b", "x" * 129, "a\n", None, 7])
def test_a_malformed_scope_is_refused(scope: Any) -> None:
    with pytest.raises(InvalidName):
        check_scope(scope)


# times


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_time_comes_back_as_it_was(moment: datetime) -> None:
    assert to_datetime(to_micros(moment)) == moment
    assert to_micros(moment.isoformat()) == to_micros(moment) == to_micros(int(to_micros(moment)))


def test_times_without_a_zone_are_utc() -> None:
    assert to_micros("2026-01-31T12:00:00") == to_micros("2026-01-31T13:00:00+01:00")
    assert to_micros(datetime(2026, 1, 31, 12)) == to_micros("2026-01-31T12:00:00Z")  # noqa: DTZ001


@pytest.mark.parametrize("value", ["soon", "", True, 1.5, None, b"2026-01-31", 1 << 63, -(1 << 63) - 1])
def test_what_is_no_time_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument):
        to_micros(value)


def test_a_time_beyond_the_years_of_a_datetime_is_said_to_be() -> None:
    with pytest.raises(InvalidArgument, match="outside the years 1 to 9999"):
        to_datetime((1 << 63) - 1)
