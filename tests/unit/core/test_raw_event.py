"""A single raw event, encoded without Arrow."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.core.codec import decode, encode, event_bounds
from anabranch.core.raw_event import RawEvent, payload_of
from anabranch.core.routing import key_points, spread_points
from anabranch.model.columns import RAW_COLUMNS, TIME_TYPE
from anabranch.model.ids import Micros
from anabranch.model.schema import RAW
from anabranch.writing.routes import points_of

micros = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.none() | st.text(max_size=20), micros, st.binary(max_size=40))
@example(None, 0, b"")
@example("", 0, b"")
@example("k" * 8, -1, b"p" * 8)
def test_a_raw_event_is_what_arrow_makes_of_a_batch_of_one_row(key: str | None, time: int, payload: bytes) -> None:
    columns = [pa.array([key], pa.string()), pa.array([time], TIME_TYPE), pa.array([payload], pa.binary())]
    batch = pa.record_batch(columns, schema=RAW_COLUMNS)
    event = RawEvent(key, Micros(time), memoryview(payload))
    assert decode(encode(event), RAW_COLUMNS).equals(batch)
    assert event.batch().equals(batch)
    assert encode(event) == encode(batch), "or digests of messages would tell equal events apart"
    assert event.nbytes == batch.nbytes
    assert event_bounds(event, RAW) == event_bounds(batch, RAW)
    event.batch().validate(full=True)


@given(st.none() | st.text(max_size=20), micros, st.binary(max_size=40))
def test_the_payload_of_an_event_without_a_key_is_found_in_its_message(
    key: str | None, time: int, payload: bytes
) -> None:
    message = RawEvent(key, Micros(time), payload).message
    assert payload_of(message) == (payload if key is None else None)
    assert payload_of(message[:-1]) is None


def test_no_payload_is_found_in_the_message_of_two_events() -> None:
    two = pa.Table.from_batches([RawEvent(None, Micros(1), b"a").batch()] * 2).combine_chunks().to_batches()[0]
    assert payload_of(two.serialize().to_pybytes()) is None


@given(st.none() | st.text(max_size=20), st.integers(0, (1 << 63) - 1))
def test_it_is_routed_as_any_row_is(key: str | None, spread_from: int) -> None:
    found = points_of(RawEvent(key, Micros(0), b""), RAW, spread_from).per_row()
    wanted = spread_points(1, spread_from)
    if key is not None:
        wanted = key_points(pa.array([key], pa.string()), spread_from=spread_from).per_row()
    assert found.dtype == wanted.dtype
    assert found.tolist() == wanted.tolist()
