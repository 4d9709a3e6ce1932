"""Append and read by plain Flight, as a client in another language does it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import anabranch as ab
from anabranch.errors import ConditionFailed, StoreUnavailable, StreamNotFound
from anabranch.model.ids import StreamId
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from anabranch.wire.commands import pack
from anabranch.wire.flight_errors import error_of_text, from_flight
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.store.helpers import bodies_of


class Put:
    """One DoPut."""

    def __init__(self, client: flight.FlightClient, command: v1.AppendCommand, schema: pa.Schema) -> None:
        descriptor = flight.FlightDescriptor.for_command(pack(command))
        self.writer, self._answers = client.do_put(descriptor, schema)
        self.opened = v1.AppendOpened.FromString(self._answers.read().to_pybytes())

    def send(self, batch: pa.RecordBatch, **metadata: Any) -> None:
        self.writer.write_with_metadata(batch, v1.AppendMetadata(**metadata).SerializeToString())

    def answer(self) -> v1.AppendAnswer:
        return v1.AppendAnswer.FromString(self._answers.read().to_pybytes())

    def close(self) -> None:
        self.writer.done_writing()
        assert self._answers.read() is None
        self.writer.close()


def payloads(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], ["payload"])


def put(client: flight.FlightClient, stream: str = "s/a") -> Put:
    return Put(client, v1.AppendCommand(stream=stream), payloads().schema)


def read(client: flight.FlightClient, **command: Any) -> list[tuple[pa.RecordBatch, v1.BatchMetadata]]:
    chunks = client.do_get(flight.Ticket(pack(v1.ReadCommand(**command))))
    return [(each.data, v1.BatchMetadata.FromString(each.app_metadata.to_pybytes())) for each in chunks]


def test_each_batch_is_answered_with_the_places_of_its_rows(client: flight.FlightClient, store: Store) -> None:
    call = put(client)
    sent = [b"%d" % i for i in range(100)]
    keyed = pa.record_batch([pa.array([f"k{i}" for i in range(100)]), pa.array(sent)], ["key", "payload"])
    call = Put(client, v1.AppendCommand(stream="s/a"), keyed.schema)
    call.send(keyed, sequence=7)
    answer = call.answer()
    call.close()
    assert (answer.sequence, answer.error, answer.duplicate) == (7, "", False)
    assert sum(each.count for each in answer.ranges) == 100 and len(answer.ranges) == 2
    taken = [0, 0]
    for row, number in enumerate(memoryview(answer.range_of_row).cast("H")):
        place = answer.ranges[number]
        pointer = ab.EventPointer(
            StreamId(call.opened.stream_id), ab.SegmentId.unpack(place.segment), place.start + taken[number]
        )
        taken[number] += 1
        assert store.fetch(pointer).body == sent[row]


def test_a_refused_batch_is_answered_and_others_are_independent_of_it(
    client: flight.FlightClient, store: Store
) -> None:
    call = put(client)
    call.send(payloads(b"a"), sequence=0)
    assert not call.answer().error
    call.send(payloads(b"b"), sequence=1, expected=99)
    call.send(payloads(b"c"), sequence=2)
    with pytest.raises(ConditionFailed):
        raise error_of_text(call.answer().error)
    assert not call.answer().error
    call.close()
    assert b"b" not in bodies_of(store, "s/a")


def test_a_stream_that_does_not_exist_is_refused_before_the_first_batch(client: flight.FlightClient) -> None:
    call = put(client, "s/nowhere")
    with pytest.raises(StreamNotFound):
        raise error_of_text(call.opened.error)
    call.close()


@pytest.mark.parametrize("compact", [False, True])
def test_a_read_continues_after_any_batch(client: flight.FlightClient, store: Store, compact: bool) -> None:
    with store.writer("s/a") as writer:
        for i in range(40):
            writer.write_batch(pa.table({"key": [f"k{i}"] * 2_000, "payload": [b"%0100d" % i] * 2_000}))
            writer.flush()
    whole = read(client, stream="s/a", compact=compact)
    assert len(whole) > 2 and sum(batch.num_rows for batch, _ in whole) == 80_000
    offsets: dict[ab.SegmentId, int] = {}
    for number, (_, metadata) in enumerate(whole):
        if metadata.position:
            offsets = ab.StreamCut.parse(metadata.position).as_dict()
        for run in metadata.runs:
            assert not run.position and not run.offsets
            offsets[ab.SegmentId.unpack(run.segment)] = run.stop
        cut = ab.StreamCut.of(store.streams.get("s/a").id, offsets)
        rest = read(client, stream="s/a", start=v1.Place(text=str(cut)), compact=compact)
        assert sum(b.num_rows for b, _ in rest) == sum(b.num_rows for b, _ in whole[number + 1 :])


def test_a_compact_batch_reports_segments_offsets_and_append_times(client: flight.FlightClient, store: Store) -> None:
    with store.writer("s/a") as writer:
        for i in range(4):
            writer.write_batch(pa.table({"key": [f"k{n}" for n in range(20)], "payload": [b"%d" % i] * 20}))
            writer.flush()
    _, (batch, metadata) = read(client, stream="s/a", compact=True)
    assert batch.schema.names == ["key", "time", "payload"]
    assert len(metadata.runs) == 2  # of both segments, in one batch
    begin = 0
    with store.reader("s/a") as reader:
        for run, expected in zip(metadata.runs, reader.batches(), strict=True):
            assert batch.slice(begin, run.rows).to_pylist() == expected.select(batch.schema.names).to_pylist()
            begin += run.rows
            assert (run.first, run.stop, run.rows) == (0, expected.num_rows, expected.num_rows)
            times = list(memoryview(run.appended_times).cast("q")) or [run.appended_us] * run.rows
            assert times == expected.column("_appended").cast(pa.int64()).to_pylist()
            assert run.segment == expected.column("_segment")[0].as_py()
    assert begin == batch.num_rows == 80


def test_streams_are_listed_and_described(client: flight.FlightClient, store: Store) -> None:
    store.streams.create("s/typed", schema=pa.schema([("device", pa.string()), ("n", pa.int32())]), key="device")
    names = {b"/".join(each.descriptor.path).decode() for each in client.list_flights()}
    assert names == {"s/a", "s/typed"}
    info = client.get_flight_info(flight.FlightDescriptor.for_path("s", "typed"))
    found = v1.StreamDescription.FromString(info.app_metadata)
    assert (found.name, found.key, found.raw) == ("s/typed", "device", False)
    assert client.do_get(info.endpoints[0].ticket).read_all().schema == info.schema


def test_a_follower_ends_with_the_seal_and_with_its_client(client: flight.FlightClient, store: Store) -> None:
    with store.writer("s/a") as writer:
        writer.write(b"1")
    follower = client.do_get(flight.Ticket(pack(v1.ReadCommand(stream="s/a", follow=True))))
    assert follower.read_chunk().data["payload"].to_pylist() == [b"1"]
    left = client.do_get(flight.Ticket(pack(v1.ReadCommand(stream="s/a", follow=True))))
    left.read_chunk()
    left.cancel()
    store.streams.seal("s/a")
    with pytest.raises(StopIteration):
        follower.read_chunk()


def test_a_read_is_sent_at_the_rate_of_its_command(client: flight.FlightClient, store: Store) -> None:
    with store.writer("s/a") as writer:
        for number in range(20):
            writer.write(b"%d" % number, key="k")
    slow = client.do_get(flight.Ticket(pack(v1.ReadCommand(stream="s/a", events_per_s=0.001))))
    first = slow.read_chunk()
    slow.cancel()
    assert first.data["payload"].to_pylist() == [b"0"]
    after = v1.BatchMetadata.FromString(first.app_metadata.to_pybytes()).position
    parts = read(client, stream="s/a", start=v1.Place(text=after), events_per_s=1000.0, bytes_per_s=1e9)
    assert [each for part, _ in parts for each in part["payload"].to_pylist()] == [b"%d" % n for n in range(1, 20)]


def test_a_drain_refuses_new_calls_and_ends_followers(
    client: flight.FlightClient, service: FlightService, store: Store
) -> None:
    with store.writer("s/a") as writer:
        writer.write(b"1")
    follower = client.do_get(flight.Ticket(pack(v1.ReadCommand(stream="s/a", follow=True))))
    follower.read_chunk()
    assert service.drain(30.0)
    with pytest.raises(flight.FlightUnavailableError):
        follower.read_chunk()
    with pytest.raises(flight.FlightUnavailableError) as refused:
        read(client, stream="s/a")
    with pytest.raises(StoreUnavailable, match="another"):
        raise from_flight(refused.value)
