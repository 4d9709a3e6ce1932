"""An append that a producer repeats at a broker that did not take it the first time."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import flight

import anabranch as ab
from anabranch.core.routing import key_points
from anabranch.server.flight.appended_rows import repeated_rows
from anabranch.store import Store
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.server.flight.test_append_and_read import Put

KEYED = pa.schema([("key", pa.string()), ("payload", pa.binary())])


def events(count: int, *, without_key: int | None = None) -> pa.RecordBatch:
    keys = [None if i == without_key else f"k{i}" for i in range(count)]
    return pa.record_batch([pa.array(keys, pa.string()), pa.array([b"%d" % i for i in range(count)])], schema=KEYED)


def append(client: flight.FlightClient, batch: pa.RecordBatch, number: int) -> v1.AppendAnswer:
    call = Put(client, v1.AppendCommand(stream="s/a", producer="p", epoch=1), KEYED)
    call.send(batch, sequence=number)
    answer = call.answer()
    call.close()
    assert not answer.error
    return answer


def places(answer: v1.AppendAnswer) -> list[tuple[int, int]]:
    """The segment and offset of each row."""
    taken = [each.start for each in answer.ranges]
    found = []
    for number in memoryview(answer.range_of_row).cast("H"):
        found.append((answer.ranges[number].segment, taken[number]))
        taken[number] += 1
    return found


def test_a_repeat_is_answered_with_the_places_of_its_rows(client: flight.FlightClient, store: Store) -> None:
    batch = events(100)
    first = append(client, batch, 0)
    assert not first.duplicate and len(first.ranges) == 2
    for segments in (2, 5):
        store.streams.scale("s/a", segments)
        again = append(client, batch, 0)
        assert again.duplicate
        assert places(again) == places(first)
    stream = store.streams.get("s/a").id
    for row, (segment, offset) in enumerate(places(first)):
        assert store.fetch(ab.EventPointer(stream, ab.SegmentId.unpack(segment), offset)).body == b"%d" % row


@pytest.mark.parametrize("other", [events(100, without_key=7), events(100).slice(50).take(pa.array([0] * 100))])
def test_the_places_of_rows_are_left_out_where_keys_do_not_tell(
    client: flight.FlightClient,
    store: Store,
    other: pa.RecordBatch,
) -> None:
    first = append(client, other if other.column("key").null_count else events(100), 0)
    again = append(client, other, 0)
    assert again.duplicate
    assert [(each.segment, each.count) for each in again.ranges] == [
        (each.segment, each.count) for each in first.ranges
    ]
    assert len(again.ranges) == 2 and not again.range_of_row


def test_segments_that_share_keys_do_not_tell(store: Store) -> None:
    store.streams.scale("s/a", 3)
    with store.catalog.reading() as reading:
        view = reading.view(store.streams.get("s/a").id)
    assert view is not None
    keys = pa.array(["k0"] * 4)
    batch = pa.record_batch([keys, pa.array([b""] * 4)], schema=KEYED)
    point = int(key_points(keys, spread_from=0).points[0])
    parent, successor = (each.id for each in view.ordered if point in each.range)
    assert repeated_rows(view, batch, [(parent, 0, 2), (successor, 0, 2)]) == []
    ((segment, start, rows),) = repeated_rows(view, batch, [(parent, 5, 4)])
    assert (segment, start, rows.tolist()) == (parent, 5, [0, 1, 2, 3])
    assert repeated_rows(view, batch, [(parent, 5, 3)]) == [], "other events"
