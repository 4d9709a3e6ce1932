"""Commands and Arrow data that are random, truncated or of a wrong schema: one clear error each, and the server goes on."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from anabranch.errors import AnabranchError, InvalidArgument, SchemaMismatch
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from anabranch.wire.commands import pack
from anabranch.wire.flight_errors import error_of_text, from_flight
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.store.helpers import bodies_of


def refused(act: Any) -> Exception:
    with pytest.raises(flight.FlightError) as found:
        act()
    return from_flight(found.value)


def outcomes(client: flight.FlightClient, command: bytes, batch: pa.RecordBatch, metadata: bytes) -> list[Exception]:
    """The errors that one append is answered with."""
    writer, answers = client.do_put(flight.FlightDescriptor.for_command(command), batch.schema)
    found = []
    opened = answers.read()
    if opened is not None and (text := v1.AppendOpened.FromString(opened.to_pybytes()).error):
        found.append(error_of_text(text))
    elif opened is not None:
        writer.write_with_metadata(batch, metadata)
        answer = v1.AppendAnswer.FromString(answers.read().to_pybytes())
        if answer.error:
            found.append(error_of_text(answer.error))
    writer.done_writing()
    try:
        writer.close()
    except flight.FlightError as exc:
        found.append(from_flight(exc))
    return found


def goes_on(client: flight.FlightClient, store: Store) -> None:
    with store.writer("s/a") as writer:
        writer.write(b"alive")
    table = client.do_get(flight.Ticket(pack(v1.ReadCommand(stream="s/a")))).read_all()
    assert table["payload"].to_pylist() == [b"alive"]


def test_random_and_truncated_commands_are_refused(client: flight.FlightClient, store: Store) -> None:
    chance = random.Random(7)
    good = pack(v1.ReadCommand(stream="s/a", start=v1.Place(text="head"), columns=["payload"]))
    bad = [chance.randbytes(size) for size in (0, 1, 7, 100, 5_000)] + [good[:-n] for n in range(1, 12)]
    for command in [*bad, pack(v1.DescribeCommand(stream="s/a")), b"x" * (1 << 21)]:
        assert isinstance(refused(lambda: client.do_get(flight.Ticket(command)).read_all()), AnabranchError)  # noqa: B023
    goes_on(client, store)


def test_hostile_values_of_a_read_are_refused(client: flight.FlightClient, store: Store) -> None:
    for hostile in (
        v1.ReadCommand(stream="\0"),
        v1.ReadCommand(stream="s/a", batch_rows=-1),
        v1.ReadCommand(stream="s/a", columns=["none"]),
        v1.ReadCommand(stream="s/a", start=v1.Place(text="f" * 48)),
        v1.ReadCommand(stream="s/a", start=v1.Place(text="x" * 100_000)),
        v1.ReadCommand(stream="s/a", start=v1.Place(text="nonsense"), skip_truncated=True),
        v1.ReadCommand(stream="s/a", before=v1.Place(time_us=1)),
        v1.ReadCommand(stream="s/a", by="moon"),
    ):
        error = refused(lambda: client.do_get(flight.Ticket(pack(hostile))).read_all())  # noqa: B023
        assert isinstance(error, AnabranchError), error
        assert "the broker failed" not in str(error)
    goes_on(client, store)


def test_hostile_values_of_a_range_are_refused(client: flight.FlightClient, store: Store) -> None:
    stream = store.streams.get("s/a").id
    segment = store.streams.view("s/a").current[0].id.packed
    for hostile in (
        v1.RangeReadCommand(stream_id=stream, segment=segment, stop=1),
        v1.RangeReadCommand(stream_id=stream, segment=segment, start=-1),
        v1.RangeReadCommand(stream_id=stream, segment=segment, start=1 << 62, stop=1 << 63 - 1),
        v1.RangeReadCommand(stream_id=stream, segment=77),
        v1.RangeReadCommand(stream_id=stream, segment=-1),
        v1.RangeReadCommand(stream_id=stream, segment=segment, columns=["none"]),
        v1.RangeReadCommand(stream_id=-1),
        v1.RangeReadCommand(stream_id=7),
    ):
        error = refused(lambda: client.do_get(flight.Ticket(pack(hostile))).read_all())  # noqa: B023
        assert isinstance(error, AnabranchError), (hostile, error)
        assert "the broker failed" not in str(error), hostile
    goes_on(client, store)


def test_appends_of_a_wrong_schema_or_with_bad_metadata_are_refused(client: flight.FlightClient, store: Store) -> None:
    command = pack(v1.AppendCommand(stream="s/a"))
    good = pa.record_batch([pa.array([b"x"])], ["payload"])
    wrong = pa.record_batch([pa.array([1])], ["nothing"])
    (error,) = outcomes(client, command, wrong, b"")
    assert isinstance(error, SchemaMismatch)
    (error,) = outcomes(client, command, good, b"\xff\xff\xff")
    assert isinstance(error, InvalidArgument)
    (error,) = outcomes(client, pack(v1.AppendCommand(stream="s/a", producer="p", epoch=-5)), good, b"")
    assert isinstance(error, InvalidArgument)
    for sequence in (5, -3, 2**63 - 1):
        metadata = v1.AppendMetadata(sequence=sequence).SerializeToString()
        (error,) = outcomes(client, pack(v1.AppendCommand(stream="s/a", producer="p")), good, metadata)
        assert isinstance(error, AnabranchError)
    for command in (b"", b"junk", pack(v1.ReadCommand(stream="s/a"))):
        descriptor = flight.FlightDescriptor.for_command(command)
        writer, _ = client.do_put(descriptor, good.schema)
        writer.done_writing()
        assert isinstance(refused(writer.close), InvalidArgument)
    assert bodies_of(store, "s/a") == []
    goes_on(client, store)


def test_text_that_is_not_utf8_is_refused(client: flight.FlightClient, store: Store) -> None:
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(bytes(4) + b"\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    for hostile in (pa.RecordBatch.from_arrays([text, pa.array([b"x"])], ["key", "payload"]),):
        (error,) = outcomes(client, pack(v1.AppendCommand(stream="s/a")), hostile, b"")
        assert isinstance(error, InvalidArgument)
    goes_on(client, store)


def test_a_descriptor_without_a_path_and_a_command_is_refused(store: Store) -> None:
    with (
        FlightService(Broker(store, OpenGuard())) as service,
        flight.FlightClient(f"grpc://127.0.0.1:{service.port}") as client,
    ):
        assert isinstance(refused(lambda: client.get_flight_info(flight.FlightDescriptor.for_path())), InvalidArgument)
