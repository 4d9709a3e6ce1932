"""Requests of a session that a network repeats at another broker: they change nothing there."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from anabranch.wire.v1 import store_pb2 as v1
from tests.server.grpc.client import Client, error_of
from tests.server.grpc.test_events import called, payloads, read
from tests.server.kit import BrokerProcess
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def elsewhere(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of another broker of the same store."""
    folder = tmp_path_factory.mktemp("elsewhere")
    http_off = ["--set", "http=false", "--set", "flight=false"]
    with (
        BrokerProcess(Path(broker.addresses["store"]), *http_off, folder=folder) as process,
        Client(process.addresses["grpc"]) as made,
    ):
        yield made


class Recorded:
    """A call that keeps what it sends, each request after the answer to the one before."""

    def __init__(self, client: Client, name: str) -> None:
        self.sent: list[Any] = []
        self._queue: queue.Queue[Any] = queue.Queue()
        self._call = getattr(client, name)(iter(self._queue.get, None), timeout=PATIENCE_S)

    def ask(self, request: Any) -> Any:
        self.sent.append(request)
        self._queue.put(request)
        return next(self._call)

    def end(self) -> None:
        self._queue.put(None)
        assert list(self._call) == []


class Caller(Recorded):
    """A caller who names the session in each request."""

    def __init__(self, client: Client, name: str, kind: Any, **opening: Any) -> None:
        super().__init__(client, name)
        self._kind = kind
        self._session = self.ask(kind(**opening)).session

    def does(self, **request: Any) -> Any:
        return self.ask(self._kind(session=self._session, **request))


def repeated(client: Client, name: str, sent: list[Any]) -> grpc.RpcError:
    """What another broker says to the same requests."""
    call = Recorded(client, name)
    with pytest.raises(grpc.RpcError) as caught:
        list(map(call.ask, sent))
    return caught.value


@pytest.fixture
def names(client: Client, request: pytest.FixtureRequest) -> tuple[str, str]:
    """A stream with 20 events, and an empty one."""
    found = tuple(f"iot/repeated-{request.node.name.partition('[')[0][-20:]}-{part}" for part in ("in", "out"))
    for name in found:
        called(client, "streams.create", name=name)
    client.Append(v1.AppendRequest(stream=found[0], events=payloads(*map(str, range(20)))))
    return found[0], found[1]


def test_requests_of_a_group_reader_write_nothing_twice_and_skip_nothing(
    client: Client, elsewhere: Client, names: tuple[str, str]
) -> None:
    stream, out = names
    group = f"{stream}-group"
    called(client, "group.open", group=group, streams=[stream], end="tail")
    opening = v1.OpenGroupReader(group=group, reader="r", delivery="exactly_once", batch_events=8)
    reader = Caller(client, "ReadGroup", v1.ReadGroupRequest, open=opening)
    batch = reader.does(next=v1.NextGroupBatch()).batch
    reader.does(commit=v1.CommitGroup(outputs=[v1.GroupOutput(stream=out, events=batch.events)]))
    reader.does(leave=v1.LeaveGroup())
    reader.end()
    error = repeated(elsewhere, "ReadGroup", reader.sent)
    assert (error.code(), error_of(error).code) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument")
    until(lambda: called(client, "group.readers", group=group) == [[]])
    assert len(read(client, out)) == 8
    rest = Caller(client, "ReadGroup", v1.ReadGroupRequest, open=opening)
    while len((batch := rest.does(next=v1.NextGroupBatch()).batch).events):
        rest.does(commit=v1.CommitGroup(outputs=[v1.GroupOutput(stream=out, events=batch.events)]))
    rest.does(leave=v1.LeaveGroup())
    rest.end()
    assert sorted(int(each.payload) for each in read(client, out)) == list(range(20))


def test_requests_of_a_transaction_publish_nothing_twice(
    client: Client, elsewhere: Client, names: tuple[str, str]
) -> None:
    _, out = names
    transaction = Caller(client, "Transact", v1.TransactRequest, open=v1.OpenTransaction(caller="c"))
    transaction.does(write=v1.TransactionWrite(stream=out, events=payloads("a", "b")))
    transaction.does(commit=v1.TransactionCommit())
    transaction.end()
    error = repeated(elsewhere, "Transact", transaction.sent)
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert [each.payload for each in read(client, out)] == [b"a", b"b"]


def test_who_names_no_session_is_not_checked(client: Client, names: tuple[str, str]) -> None:
    _, out = names
    requests = [
        v1.TransactRequest(open=v1.OpenTransaction()),
        v1.TransactRequest(write=v1.TransactionWrite(stream=out, events=payloads("a"))),
        v1.TransactRequest(commit=v1.TransactionCommit()),
    ]
    answers = list(client.Transact(iter(requests), timeout=PATIENCE_S))
    assert [bool(each.session) for each in answers] == [True, False, False]
    assert len(read(client, out)) == 1
