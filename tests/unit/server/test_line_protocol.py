"""The line protocol: what lines mean, and what is said of those that mean nothing."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.server.http.influx.line_protocol import InfluxPoint, LineRefused, parse_lines


def one(text: str) -> InfluxPoint:
    (found,) = parse_lines(text)
    assert isinstance(found, InfluxPoint), found
    return found


@pytest.mark.parametrize(
    ("line", "measurement", "tags", "fields", "at"),
    [
        ("cpu value=1", "cpu", {}, {"value": 1.0}, None),
        ("cpu,host=a,region=eu value=1i 5", "cpu", {"host": "a", "region": "eu"}, {"value": 1}, 5),
        (r"c\ p\,u,h\=o=a\ b value=-1.5e3", "c p,u", {"h=o": "a b"}, {"value": -1500.0}, None),
        (r'm t="say \"hi\" \\ there",b=T,c=false 9', "m", {}, {"t": 'say "hi" \\ there', "b": True, "c": False}, 9),
        ('m t="two\nlines",v=1 1', "m", {}, {"t": "two\nlines", "v": 1.0}, 1),
        ('m t="a=1,b 2" -7', "m", {}, {"t": "a=1,b 2"}, -7),
        ("m  v=1   3 ", "m", {}, {"v": 1.0}, 3),
        ("größe,ort=köln v=.5", "größe", {"ort": "köln"}, {"v": 0.5}, None),
    ],
)
def test_a_line_is_a_point(
    line: str, measurement: str, tags: dict[str, str], fields: dict[str, object], at: int | None
) -> None:
    point = one(line)
    assert (point.measurement, point.tags, point.fields, point.at) == (measurement, tags, fields, at)
    assert [type(value) for value in point.fields.values()] == [type(value) for value in fields.values()]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("cpu", "missing fields"),
        ("cpu,host=a", "missing fields"),
        (",host=a value=1", "missing measurement"),
        ("cpu,host value=1", "missing tag value"),
        ("cpu,=a value=1", "missing tag key"),
        ("cpu,a=1,a=2 value=1", "duplicate tags"),
        ("cpu value=", "missing field value"),
        ("cpu =1", "missing field key"),
        ("cpu value", "invalid field format"),
        ("cpu value=1x", "invalid number"),
        ("cpu value=nope", "invalid boolean"),
        ('cpu value="open', "unbalanced quotes"),
        ("cpu value=1 soon", "bad timestamp"),
    ],
)
def test_a_line_that_means_nothing_is_refused_with_the_reason(line: str, reason: str) -> None:
    (found,) = parse_lines(line)
    assert isinstance(found, LineRefused) and str(found).endswith(f": {reason}")


def test_empty_lines_and_comments_are_no_points() -> None:
    assert len(list(parse_lines("\n# a comment\r\nm v=1\n\n  \n"))) == 1


@given(st.text(max_size=60))
def test_any_text_is_points_or_refusals(text: str) -> None:
    for found in parse_lines(text):
        assert isinstance(found, InfluxPoint | LineRefused)


def test_a_text_that_never_ends_costs_no_more_than_reading_it() -> None:
    text = 'm t="never ends\n' + "cpu,host=a value=1 1\n" * 100_000
    started = time.process_time()
    (refused,) = parse_lines(text)
    assert isinstance(refused, LineRefused) and "unbalanced quotes" in str(refused)
    assert time.process_time() - started < 10  # it took hours


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1e999", "invalid float"),
        ("9" * 5_000 + "i", "value out of range"),
        ("-" + "9" * 20 + "i", "value out of range"),
        ("9223372036854775808i", "value out of range"),
    ],
)
def test_a_number_that_no_column_holds_is_refused(value: str, reason: str) -> None:
    (refused,) = parse_lines(f"m v={value}")
    assert isinstance(refused, LineRefused) and reason in str(refused)


def test_leading_zeros_are_digits_of_no_weight() -> None:
    assert one(f"m v=-{'0' * 5_000}7i").fields == {"v": -7}
