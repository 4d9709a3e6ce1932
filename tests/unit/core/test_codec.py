"""Batches as stored bytes and back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.checksum import checksum
from anabranch.core.codec import decode, encode, event_bounds, widen
from anabranch.errors import CorruptBlob
from anabranch.model.append import TimeBounds
from anabranch.model.columns import TIME_TYPE
from anabranch.model.schema import RAW, StreamSchema

SCHEMA = StreamSchema.typed(
    pa.schema(
        [
            ("device", pa.string()),
            ("at", TIME_TYPE),
            ("n", pa.int32()),
            ("x", pa.float64()),
            ("ok", pa.bool_()),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("lat", pa.float32()), ("name", pa.string())])),
        ]
    ),
    "device",
    "at",
)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


rows = st.lists(
    st.fixed_dictionaries(
        {
            "device": optional(st.text(max_size=5)),
            "at": optional(st.integers(-(1 << 62), 1 << 62)),
            "n": optional(st.integers(-(1 << 31), (1 << 31) - 1)),
            "x": optional(st.floats(allow_nan=False)),
            "ok": optional(st.booleans()),
            "tags": optional(st.lists(optional(st.text(max_size=3)), max_size=3)),
            "place": optional(
                st.fixed_dictionaries(
                    {"lat": optional(st.floats(width=32, allow_nan=False)), "name": optional(st.text(max_size=2))}
                )
            ),
        }
    ),
    max_size=12,
)


def batch_of(values: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(pa.array(values, pa.struct(list(SCHEMA.columns))))


@given(rows)
def test_what_was_encoded_is_decoded(values: list[dict[str, Any]]) -> None:
    batch = batch_of(values)
    assert decode(encode(batch), SCHEMA.columns).equals(batch)


@given(rows, st.integers(0, 12), st.integers(0, 12))
def test_a_slice_is_stored_without_the_rest(values: list[dict[str, Any]], start: int, count: int) -> None:
    batch = batch_of(values)
    part = batch.slice(min(start, batch.num_rows), count)
    message = encode(part)
    assert decode(message, SCHEMA.columns).equals(part)
    assert message.size <= encode(batch).size


def test_a_small_slice_of_a_large_batch_is_small() -> None:
    batch = pa.record_batch([[None], [None], [bytes(1 << 20)]], schema=RAW.columns)
    many = pa.concat_batches([batch, pa.record_batch([["k"], [1], [b"small"]], schema=RAW.columns)])
    assert encode(many.slice(1)).size < 1_000


def test_decoding_copies_nothing() -> None:
    message = encode(pa.record_batch([["k"] * 100, range(100), [b"x" * 50] * 100], schema=RAW.columns))
    decoded = decode(message, RAW.columns)
    data = decoded.column("payload").buffers()[2]
    assert message.address <= data.address < message.address + message.size


@given(rows.filter(len), st.data())
def test_a_damaged_message_is_an_error_of_the_store_or_is_reported_by_its_checksum(
    values: list[dict[str, Any]], data: st.DataObject
) -> None:
    message = encode(batch_of(values))
    damaged = bytearray(message.to_pybytes())
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    assert checksum(bytes(damaged)) != checksum(message)


@pytest.mark.parametrize("message", [b"", b"\x00", b"garbage" * 20, b"\xff\xff\xff\xff\x00\x00\x00\x00"])
def test_what_is_no_message_is_corrupt_and_names_its_blob(message: bytes) -> None:
    with pytest.raises(CorruptBlob, match="commits/x") as caught:
        decode(pa.py_buffer(message), RAW.columns, key="commits/x")
    assert caught.value.key == "commits/x"


def test_a_truncated_message_is_corrupt() -> None:
    message = encode(batch_of([{"device": "a", "at": 1}]))
    for size in (message.size // 4, message.size - 8):
        with pytest.raises(CorruptBlob):
            decode(message.slice(0, size), SCHEMA.columns)


def test_checksums_are_signed_64_bit_numbers() -> None:
    assert checksum(b"") == 0x2D06800538D394C2
    sums = [checksum(bytes([i])) for i in range(64)]
    assert all(-(1 << 63) <= each < 1 << 63 for each in sums)
    assert min(sums) < 0 < max(sums)
    assert checksum(pa.py_buffer(b"abc")) == checksum(b"abc")


@given(rows)
def test_bounds_are_the_smallest_and_greatest_event_time(values: list[dict[str, Any]]) -> None:
    times = [row["at"] for row in values if row["at"] is not None]
    expected = TimeBounds(min(times), max(times)) if times else TimeBounds(None, None)
    assert event_bounds(batch_of(values), SCHEMA) == expected


def test_without_event_times_there_are_no_bounds() -> None:
    timeless = StreamSchema.typed(pa.schema([("n", pa.int64())]))
    assert event_bounds(pa.record_batch([[1, 2]], schema=timeless.columns), timeless) == TimeBounds(None, None)


@given(rows)
def test_an_older_batch_is_widened_with_nulls_in_the_new_order(values: list[dict[str, Any]]) -> None:
    batch = batch_of(values)
    wider = SCHEMA.evolved(pa.schema([*SCHEMA.columns, ("more", pa.int64()), ("text", pa.string())])).columns
    wide = widen(batch, wider)
    assert wide.schema == wider
    assert wide.select(SCHEMA.columns.names).equals(batch)
    assert wide.column("more").null_count == wide.column("text").null_count == len(values)
    assert widen(batch, SCHEMA.columns) is batch


TEXT = pa.schema([("text", pa.string()), ("number", pa.int64())])


def _text_message(ends: list[int], data: bytes) -> pa.Buffer:
    """A message whose text column has these bytes and these offsets, whatever they mean: Arrow writes sound offsets,
    which are then replaced."""
    sound = [*range(len(ends) - 1), len(data)]
    text = pa.Array.from_buffers(pa.string(), len(ends) - 1, [None, _int32s(sound), pa.py_buffer(data)])
    message = pa.record_batch([text, pa.array(range(len(text)), pa.int64())], schema=TEXT).serialize().to_pybytes()
    assert message.count(_int32s(sound).to_pybytes()) == 1
    return pa.py_buffer(message.replace(_int32s(sound).to_pybytes(), _int32s(ends).to_pybytes()))


def _int32s(values: list[int]) -> pa.Buffer:
    return pa.py_buffer(b"".join(value.to_bytes(4, "little", signed=True) for value in values))


@pytest.mark.parametrize(
    ("ends", "data"),
    [
        ([0, 1, 3], b"abc"),
        ([0, 1, 3], "aé".encode()),
        ([0, 0, 3], b"abc"),
        ([0, 3, 3], "aé".encode()),
    ],
)
def test_sound_text_from_elsewhere_is_decoded(ends: list[int], data: bytes) -> None:
    message = _text_message(ends, data)
    assert decode(message, TEXT).equals(decode(message, TEXT, known=True))


@pytest.mark.parametrize(
    ("ends", "data"),
    [
        ([0, 1, 3], b"a\xffb"),  # not UTF-8
        ([0, 1, 2], "é".encode()),  # cut between two bytes of a character
        ([0, 3, 1, 3], b"abc"),  # offsets that go back, in ASCII
        ([0, 9, 3], b"abc"),  # out of the bytes
        ([0, 1, 9], b"abc"),
        ([-1, 1, 3], b"abc"),
    ],
)
def test_unsound_text_from_elsewhere_is_corrupt(ends: list[int], data: bytes) -> None:
    with pytest.raises(CorruptBlob):
        decode(_text_message(ends, data), TEXT)
