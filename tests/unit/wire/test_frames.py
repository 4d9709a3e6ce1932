"""Messages of sessions: what is sent arrives, and whatever a stranger sends gets one clear error."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch.wire.fields import Fields
from anabranch.wire.frames import Frame, pack_table, unpack_batch, unpack_table


def test_a_message_arrives_with_its_fields_and_rows() -> None:
    rows = pa.table({"n": [1, 2, 3]})
    sent = Frame("write", 7, {"stream": "s/ä", "flag": True, "count": 1 << 62}, pack_table(rows))
    found = Frame.unpack(sent.pack())
    assert (found.verb, found.number, found.fields) == ("write", 7, sent.fields)
    assert unpack_table(found.data).equals(rows)
    assert unpack_batch(found.data).num_rows == 3
    assert Frame.unpack(Frame("next").pack()).data is None


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgument):
        Frame.unpack(pa.py_buffer(data))
    with pytest.raises(InvalidArgument):
        unpack_table(pa.py_buffer(data))


@given(st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_message_is_read_or_refused(at: int, value: int) -> None:
    data = bytearray(Frame("write", 1, {"stream": "s/a"}, pack_table(pa.table({"n": [1, 2], "t": ["a", "b"]}))).pack())
    data[at % len(data)] = value
    for cut in (len(data), at % len(data)):
        try:
            found = Frame.unpack(pa.py_buffer(bytes(data[:cut])))
            unpack_table(found.data)
        except InvalidArgument:
            pass


@pytest.mark.parametrize(
    ("found", "read"),
    [
        ({}, lambda fields: fields.text("a")),
        ({"a": 1}, lambda fields: fields.text("a")),
        ({"a": True}, lambda fields: fields.count("a")),
        ({"a": -1}, lambda fields: fields.count("a")),
        ({"a": 1 << 63}, lambda fields: fields.count("a")),
        ({"a": 1}, lambda fields: fields.flag("a")),
        ({"a": "1"}, lambda fields: fields.seconds("a")),
        ({"a": float("nan")}, lambda fields: fields.seconds("a")),
        ({"a": "x"}, lambda fields: fields.position("a")),
    ],
)
def test_a_field_of_another_type_is_refused(found: object, read: object) -> None:
    with pytest.raises(InvalidArgument):
        read(Fields(found))  # type: ignore[operator,arg-type]


def test_text_that_is_not_unicode_is_not_sent() -> None:
    with pytest.raises(InvalidArgument, match="not Unicode"):
        Frame("abort", 1, {"reason": "\udcff"}).pack()
