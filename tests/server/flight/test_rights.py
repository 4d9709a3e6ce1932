"""A right that is taken away while events are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from anabranch import limits
from anabranch.errors import PermissionDenied
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.flight.byte_reads import read_bytes
from anabranch.server.flight.history import read_history
from anabranch.server.flight.read import read
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from anabranch.wire.commands import pack
from anabranch.wire.v1 import anabranch_pb2 as v1

CALLER = Principal("anonymous", ("admin",))


def events(broker: Broker) -> Iterator[Any]:
    return read(broker, CALLER, v1.ReadCommand(stream="s/a"), lambda: False)[1]


def history(broker: Broker) -> Iterator[Any]:
    stream = broker.store.streams.view("s/a")
    segment = stream.ordered[0].id
    command = v1.RangeReadCommand(
        stream_id=stream.info.id, segment=segment.packed, start=0, stop=stream.length(segment)
    )
    return read_history(broker, CALLER, command, lambda: False)[1]


def bytes_(broker: Broker) -> Iterator[Any]:
    command = v1.ByteReadCommand(stream_id=broker.store.streams.get("s/bytes").id)
    return read_bytes(broker, CALLER, command, lambda: False)[1]


@pytest.mark.parametrize("call", [events, history, bytes_])
def test_a_read_ends_where_its_caller_has_lost_the_right(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: Callable[[Broker], Iterator[Any]]
) -> None:
    with store.writer("s/a") as writer:
        for number in range(100):
            writer.write(b"x", key=str(number))
    with store.bytes("s/bytes", "xb") as file:
        file.write(b"x" * 100)
    guard = OpenGuard()
    batches = call(Broker(store, guard))

    def authorize(*_: object, **__: object) -> None:
        raise PermissionDenied("no longer")

    monkeypatch.setattr(guard, "authorize", authorize)
    monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
    with pytest.raises(PermissionDenied):
        list(batches)


def test_an_append_is_checked_by_the_present_name_of_the_stream(
    service: FlightService, client: flight.FlightClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
    descriptor = flight.FlightDescriptor.for_command(pack(v1.AppendCommand(stream="s/a")))
    batch = pa.record_batch([pa.array([b"x"])], ["payload"])
    writer, answers = client.do_put(descriptor, batch.schema)
    assert not v1.AppendOpened.FromString(answers.read().to_pybytes()).error
    store.streams.rename("s/a", "s/moved")
    monkeypatch.setattr(service._broker.guard, "authorize", lambda *call, **_: asked.append(call[2]))
    writer.write_with_metadata(batch, v1.AppendMetadata(sequence=1).SerializeToString())
    assert not v1.AppendAnswer.FromString(answers.read().to_pybytes()).error
    writer.done_writing()
    writer.close()
    assert asked == ["s/moved"]
