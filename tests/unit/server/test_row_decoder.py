"""JSON objects become events exactly, or are refused."""

from __future__ import annotations

from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.schema import StreamSchema
from anabranch.model.times import TimeRules
from anabranch.server.events.row_decoder import RowDecoder
from anabranch.server.events.row_encoder import encode_rows


def decoded(body: bytes, **columns: pa.DataType) -> dict[str, Any]:
    decoder = RowDecoder(StreamSchema(pa.schema(list(columns.items())), None, None), TimeRules())
    (row,) = decoder.batch([decoder.parse(body)]).to_pylist()
    return dict(row)


@pytest.mark.parametrize("number", ["1234567890123456.78", "0.10", "7", "-12345678901234567890.5e1"])
def test_a_decimal_keeps_all_digits_of_a_json_number(number: str) -> None:
    kind = pa.decimal128(38, 2)
    assert decoded(f'{{"d":{number}}}'.encode(), d=kind) == {"d": Decimal(number)}
    assert decoded(f'{{"d":[{number}]}}'.encode(), d=pa.list_(kind)) == {"d": [Decimal(number)]}


def test_floats_beside_a_decimal_stay_floats() -> None:
    columns = {"d": pa.decimal128(38, 2), "f": pa.float64(), "i": pa.int64(), "s": pa.struct([("f", pa.float64())])}
    body = b'{"d":1.5,"f":0.1,"i":2.0,"s":{"f":0.25}}'
    assert decoded(body, **columns) == {"d": Decimal("1.5"), "f": 0.1, "i": 2, "s": {"f": 0.25}}
    with pytest.raises(InvalidArgument):
        decoded(b'{"f":1e400}', **columns)


@pytest.mark.parametrize("text", [b'"abc"', b"[1]", b"true", b'"NaN"'])
def test_what_is_no_decimal_is_refused(text: bytes) -> None:
    with pytest.raises(SchemaMismatch, match="column 'd' takes decimal128"):
        decoded(b'{"d":%s}' % text, d=pa.decimal128(38, 2))


def test_bytes_are_given_as_text_or_as_base64_but_not_as_both() -> None:
    kind = pa.binary()
    assert decoded(b'{"b":"text"}', b=kind) == {"b": b"text"}
    assert decoded(b'{"b_base64":"YWFh"}', b=kind) == {"b": b"aaa"}
    for body in (b'{"b":null,"b_base64":"YWFh"}', b'{"b_base64":"YWFh","b":null}'):
        assert decoded(body, b=kind) == {"b": b"aaa"}
    for body in (b'{"b":"text","b_base64":null}', b'{"b_base64":null,"b":"text"}'):
        assert decoded(body, b=kind) == {"b": b"text"}
    with pytest.raises(SchemaMismatch, match="either 'b' or 'b_base64'"):
        decoded(b'{"b":"text","b_base64":"YWFh"}', b=kind)


def test_a_column_whose_name_ends_like_base64_is_that_column() -> None:
    columns = {"b": pa.binary(), "b_base64": pa.string()}
    assert decoded(b'{"b":"x","b_base64":"aGVsbG8="}', **columns) == {"b": b"x", "b_base64": "aGVsbG8="}


def test_a_time_of_day_with_a_zone_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match="without a zone"):
        decoded(b'{"t":"10:00:00+02:00"}', t=pa.time64("us"))


def test_a_map_is_given_as_an_object_or_as_the_pairs_that_are_read() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    columns = {"m": pa.map_(pa.string(), pa.timestamp("us", "UTC")), "l": pa.list_(pa.map_(pa.int64(), pa.float64()))}
    expected = {"m": [("a", at), ("b", None)], "l": [[(1, 0.5)]]}
    object_ = b'{"m":{"a":"2026-01-31T12:00:00Z","b":null},"l":[[[1,0.5]]]}'
    assert decoded(object_, **columns) == expected
    (read,) = encode_rows(pa.RecordBatch.from_pylist([expected], pa.schema(list(columns.items()))))
    assert decoded(bytes(read), **columns) == expected


@pytest.mark.parametrize("value", [b"1", b'"ab"', b"[1]", b"[[1]]", b'["ab"]', b'[["a",1,2]]', b'{"a":"soon"}'])
def test_what_is_no_map_is_refused(value: bytes) -> None:
    with pytest.raises(SchemaMismatch, match="column 'm' takes map"):
        decoded(b'{"m":%s}' % value, m=pa.map_(pa.string(), pa.timestamp("us", "UTC")))


def test_bytes_inside_of_others_are_sent_back_as_they_were_read() -> None:
    values = [b"plain", b"\xff", b"base64:/w==", None]
    nested = {
        "l": pa.array([values], pa.list_(pa.binary())),
        "s": pa.array([{"b": b"\xff"}], pa.struct([("b", pa.binary())])),
        "m": pa.array([[("k", b"\xff")]], pa.map_(pa.string(), pa.binary())),
    }
    table = pa.record_batch(nested)
    (body,) = encode_rows(table)
    assert b'"l":["plain","base64:/w==","base64:YmFzZTY0Oi93PT0=",null]' in body
    assert decoded(body, **{name: each.type for name, each in nested.items()}) == table.to_pylist()[0]
    with pytest.raises(SchemaMismatch, match=r"column 'l' takes list.* is not base64 after 'base64:'"):
        decoded(b'{"l":["base64:?"]}', l=pa.list_(pa.binary()))


def test_nanoseconds_are_sent_back_as_they_were_read() -> None:
    times, durations = pa.time64("ns"), pa.duration("ns")
    nested = pa.struct([("t", times), ("l", pa.list_(durations))])
    kinds = {"t": times, "d": durations, "s": nested, "m": pa.map_(pa.string(), times)}
    schema = pa.schema(list(kinds.items()))
    for nanos in (45_296_123_456_789, 45_296_000_000_001, 45_296_500_000_000, 0):
        row = {"t": nanos, "d": -nanos, "s": {"t": nanos, "l": [nanos, None]}, "m": [("a", nanos)]}
        batch = pa.RecordBatch.from_pylist([row], schema)
        (body,) = encode_rows(batch)
        decoder = RowDecoder(StreamSchema(schema, None, None), TimeRules())
        assert decoder.batch([decoder.parse(bytes(body))]) == batch, body
    (body,) = encode_rows(pa.RecordBatch.from_pylist([{"t": 45_296_123_456_789, "d": 90_000_000_000_001}], schema))
    assert b'"t":"12:34:56.123456789","d":"P1DT3600.000000001S"' in body


def test_times_beyond_what_arrow_can_write_are_numbers() -> None:
    kind = pa.timestamp("us", "UTC")
    times = [971_890_963_199_999_999, 971_890_963_200_000_000, (1 << 63) - 1, -1 << 62, None, 0]
    batch = pa.record_batch({"t": pa.array(times, pa.int64()).cast(kind)})
    bodies = encode_rows(batch)
    assert bodies[0] == b'{"t":"32767-12-31T23:59:59.999999Z"}'
    assert bodies[1] == b'{"t":971890963200000000}'
    assert bodies[-1] == b'{"t":"1970-01-01T00:00:00.000000Z"}'
    assert encode_rows(batch.slice(4)) == bodies[4:]
    assert encode_rows(batch.slice(0, 1)) == bodies[:1]
    decoder = RowDecoder(StreamSchema(batch.schema, None, None), TimeRules())
    assert decoder.batch([decoder.parse(bytes(body)) for body in bodies[2:]]) == batch.slice(2)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("12:34:56.1234567", pa.time64("us")),
        ("12:34:56.1234567891", pa.time64("ns")),
        ("PT0.0000015S", pa.duration("us")),
        ("PT0.0000000015S", pa.duration("ns")),
    ],
)
def test_a_time_finer_than_its_column_is_refused(text: str, kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match=f"{text} is finer than"):
        decoded(b'{"t":"%s"}' % text.encode(), t=kind)
    assert decoded(b'{"t":"%s"}' % b"12:34:56.123456000000", t=pa.time64("us")) == {"t": time(12, 34, 56, 123456)}
