"""What byte streams through a broker add: other brokers, owners that changed meanwhile, bytes that don't follow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import anabranch as ab
from anabranch import limits
from anabranch.core.byte_stream import BYTES, chunks
from anabranch.errors import AnabranchError, ConditionFailed, DiskFull, Fenced, InvalidArgument
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.flight.service import FlightService
from anabranch.store import Store
from anabranch.wire.commands import pack
from anabranch.wire.flight_errors import error_of_text
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.remote.lossy import LossyService

FILE = "s/file"


@pytest.fixture
def services(embedded: Store) -> Iterator[list[LossyService]]:
    """Two brokers of one store, whose connections can be lost."""
    embedded.scopes.create("s")
    with ExitStack() as stack:
        brokers = [Broker(embedded, OpenGuard()) for _ in range(2)]
        yield [stack.enter_context(LossyService(each)) for each in brokers]


@pytest.fixture
def store(services: list[LossyService]) -> Iterator[Store]:
    with ab.connect("anabranch://" + ",".join(f"127.0.0.1:{each.port}" for each in services)) as found:
        yield found


def stored(embedded: Store) -> bytes:
    with embedded.bytes(FILE) as file:
        return file.read()


@pytest.mark.parametrize("durable", [True, False])
def test_bytes_are_appended_once_where_a_connection_is_lost_with_their_answer(
    services: list[LossyService], store: Store, embedded: Store, durable: bool
) -> None:
    data = bytes(range(256)) * (limits.BYTE_GATHERED_BYTES // 64)
    with store.bytes(FILE, "xb") as file:
        file.write(b"first")
        file.flush()
        for each in services:
            each.lose_append(after_append=durable)
        file.write(data)
        file.flush()
        assert file.tell() == 5 + len(data)
    assert sum(each.lost for each in services) == 2
    assert stored(embedded) == b"first" + data
    assert embedded.streams.view(FILE).info.name


def test_a_reader_goes_on_at_another_broker_where_it_was(
    services: list[LossyService], store: Store, embedded: Store
) -> None:
    data = bytes(range(251)) * (16 * limits.MIB // 251)
    with embedded.bytes(FILE, "xb") as file:
        file.write(data)
    with store.bytes(FILE) as file:
        found = file.read(100_000)
        services[0].drain(0.0)
        assert found + file.read() == data
        assert store.connection.place.endswith(str(services[1].port))  # type: ignore[attr-defined]


def test_who_lost_the_connection_does_not_take_the_stream_back_from_its_next_owner(
    services: list[LossyService], store: Store, embedded: Store
) -> None:
    first = store.bytes(FILE, "xb")
    first.write(b"kept")
    first.flush()
    second = embedded.bytes(FILE, "ab")
    services[0].drain(0.0)
    first.write(b"late")
    with pytest.raises(Fenced):
        first.flush()
    first.close()
    second.write(b" on")
    second.close()
    assert stored(embedded) == b"kept on"


def test_an_append_that_fails_for_now_is_sent_again_before_those_behind_it(
    store: Store, embedded: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, left = embedded.blobs.put, [1]

    def fill_up(key: str, data: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise DiskFull("no space left")
        whole(key, data)

    monkeypatch.setattr(embedded.blobs, "put", fill_up)
    data = b"".join(bytes([n]) * limits.BYTE_GATHERED_BYTES for n in range(3))
    with store.bytes(FILE, "xb") as file:
        file.write(data)
    assert left == [0]
    assert stored(embedded) == data


def outcome(
    service: FlightService, command: v1.AppendCommand, table: pa.Table, **metadata: Any
) -> AnabranchError | None:
    """The error of one append, if it is refused."""
    with flight.FlightClient(f"grpc://127.0.0.1:{service.port}") as client:
        writer, answers = client.do_put(flight.FlightDescriptor.for_command(pack(command)), table.schema)
        opened = v1.AppendOpened.FromString(answers.read().to_pybytes())
        text = opened.error
        if not text:
            (batch,) = table.combine_chunks().to_batches()
            writer.write_with_metadata(batch, v1.AppendMetadata(**metadata).SerializeToString())
            text = v1.AppendAnswer.FromString(answers.read().to_pybytes()).error
        writer.close()
    return error_of_text(text) if text else None  # type: ignore[return-value]


def test_bytes_that_do_not_follow_those_before_are_refused(
    services: list[LossyService], store: Store, embedded: Store
) -> None:
    with store.bytes(FILE, "xb") as file:
        file.write(b"abc")
    fence = embedded._byte_streams.claim(embedded.streams.get(FILE).id)[0].claimed
    good = v1.AppendCommand(stream=FILE, byte_fence=fence)

    def refused(command: v1.AppendCommand, table: pa.Table, **metadata: Any) -> AnabranchError:
        error = outcome(services[0], command, table, **metadata)
        assert error is not None
        return error

    for table in (
        chunks(b"x", 7),
        pa.table({"until": [None], "bytes": [b"x"]}, schema=BYTES.columns),
        pa.table({"until": chunks(b"x", 3)["until"], "bytes": [None]}, schema=BYTES.columns),
        pa.table({"payload": [b"x"]}),
    ):
        assert isinstance(refused(good, table, expected=1), InvalidArgument), table
    follows = chunks(b"x", 3)
    assert isinstance(refused(good, follows), InvalidArgument)
    assert isinstance(refused(good, follows, expected=2), ConditionFailed)
    assert isinstance(refused(v1.AppendCommand(stream=FILE, byte_fence=1), follows, expected=1), Fenced)
    assert isinstance(refused(v1.AppendCommand(stream=FILE, byte_fence=0), follows, expected=1), InvalidArgument)
    assert stored(embedded) == b"abc"
    assert outcome(services[0], good, follows, expected=1) is None
    assert outcome(services[1], good, follows, expected=1) is None, "a repeat"
    assert stored(embedded) == b"abcx"
