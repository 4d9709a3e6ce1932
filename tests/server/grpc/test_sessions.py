"""ReadGroup and Transact over a real connection to a broker process."""

from __future__ import annotations

import queue
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.wire.v1 import store_pb2 as v1
from tests.server.grpc.client import Client, error_of
from tests.server.grpc.test_events import called, payloads, read, refused
from tests.server.kit import BrokerProcess
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.process
_numbers = count()


class Conversation:
    """A call whose requests are sent one by one: `ask` returns the answer, its name first."""

    def __init__(self, client: Client, name: str, kind: Any) -> None:
        self._sent: queue.Queue[Any] = queue.Queue()
        self._kind = kind
        self.call = getattr(client, name)(iter(self._sent.get, None), timeout=PATIENCE_S)

    def send(self, **request: Any) -> None:
        self._sent.put(self._kind(**request))

    def answer(self) -> tuple[str, Any]:
        message = next(self.call)
        name = message.WhichOneof("answer")
        return name, getattr(message, name)

    def ask(self, **request: Any) -> tuple[str, Any]:
        self.send(**request)
        return self.answer()

    def close(self) -> None:
        """Send no more; the rest of the answers."""
        self._sent.put(None)
        assert list(self.call) == []


class GroupConversation(Conversation):
    """A reader of a group."""

    def __init__(self, client: Client, group: str, reader: str = "r", **more: Any) -> None:
        super().__init__(client, "ReadGroup", v1.ReadGroupRequest)
        opened = v1.OpenGroupReader(group=group, reader=reader, **more)
        name, self.opened = self.ask(open=opened)
        assert name == "opened"

    def next(self, timeout_ms: int | None = None) -> list[v1.Event] | None:
        """The events of the next batch; None if there are none."""
        self.send(next=v1.NextGroupBatch(timeout_ms=timeout_ms))
        return self.batch()

    def batch(self) -> list[v1.Event] | None:
        events: list[v1.Event] = []
        while True:
            name, found = self.answer()
            if name == "nothing":
                return None
            assert name == "batch", name
            events += found.events
            if not found.more:
                return events

    def rest(self) -> list[bytes]:
        """The payloads of all batches up to the group's end."""
        found = []
        while (events := self.next()) is not None:
            found += [each.payload for each in events]
        return found


@pytest.fixture
def stream(client: Client) -> str:
    name = f"iot/session-{next(_numbers)}"
    called(client, "streams.create", name=name)
    return name


@pytest.fixture
def group(client: Client, stream: str) -> str:
    """A group that reads 20 events of the stream, to the tail."""
    client.Append(v1.AppendRequest(stream=stream, events=payloads(*map(str, range(20)))))
    called(client, "group.open", group=f"{stream}-group", streams=[stream], end="tail")
    return f"{stream}-group"


NUMBERS = [b"%d" % number for number in range(20)]


def test_a_reader_gets_each_event_and_another_goes_on_where_it_left(client: Client, group: str) -> None:
    reader = GroupConversation(client, group, batch_events=6, meta=True)
    first = reader.next()
    assert first is not None and [each.payload for each in first] == NUMBERS[:6]
    assert all(each.pointer and each.appended_us for each in first)
    assert reader.ask(leave=v1.LeaveGroup(events=4))[0] == "left"
    reader.close()
    assert GroupConversation(client, group, "other").rest() == NUMBERS[4:]


def test_what_was_not_accepted_is_read_again_where_the_call_broke_off(client: Client, group: str) -> None:
    reader = GroupConversation(client, group, batch_events=5)
    assert reader.next() and reader.next()
    assert reader.ask(commit=v1.CommitGroup(events=2))[0] == "committed"
    reader.call.cancel()
    until(lambda: called(client, "group.readers", group=group) == [[]])
    assert GroupConversation(client, group, "other").rest() == NUMBERS[7:]


def test_a_commit_writes_its_outputs_with_the_positions(client: Client, group: str) -> None:
    out = f"{group}-out"
    called(client, "streams.create", name=out)
    reader = GroupConversation(client, group, delivery="exactly_once", batch_events=8)
    events = reader.next()
    assert events is not None
    outputs = [v1.GroupOutput(stream=out, events=payloads(*(each.payload.decode() for each in events)))]
    assert reader.ask(commit=v1.CommitGroup(outputs=outputs))[0] == "committed"
    assert reader.next()
    reader.call.cancel()  # with a batch that is not committed
    until(lambda: called(client, "group.readers", group=group) == [[]])
    again = GroupConversation(client, group, delivery="exactly_once")
    while (events := again.next()) is not None:
        outputs = [v1.GroupOutput(stream=out, events=payloads(*(each.payload.decode() for each in events)))]
        again.ask(commit=v1.CommitGroup(outputs=outputs))
    assert again.ask(leave=v1.LeaveGroup())[0] == "left"
    assert sorted(int(each.payload) for each in read(client, out)) == list(range(20))


def test_a_checkpoint_is_asked_about_and_waits_for_the_answer(
    client: Client, group: str, broker: BrokerProcess
) -> None:
    called(client, "group.open", group=f"{group}-follows", streams=[group.removesuffix("-group")], refresh_s=0.1)
    reader = GroupConversation(client, f"{group}-follows", batch_events=5)
    assert reader.next()
    with ab.connect(broker.log.parent / "river") as store, ThreadPoolExecutor(1) as threads:
        pending = threads.submit(store.groups.open(f"{group}-follows").checkpoint, "c1")
        seen = 5
        reader.send(next=v1.NextGroupBatch())
        while (answer := reader.answer())[0] == "batch":
            seen += len(answer[1].events)
            reader.send(next=v1.NextGroupBatch())
        assert answer[0] == "checkpoint" and answer[1].name == "c1"
        assert not pending.done()
        reader.send(checkpoint_taken=v1.CheckpointTaken())
        taken = pending.result(PATIENCE_S)
    assert sum(taken.offsets.values()) == seen
    reader.call.cancel()


def test_a_reader_that_waits_gets_what_comes_and_ends_within_its_time(client: Client, stream: str) -> None:
    group = f"{stream}-waiting"
    called(client, "group.open", group=group, streams=[stream])
    reader = GroupConversation(client, group)
    assert reader.next(timeout_ms=0) is None
    reader.send(next=v1.NextGroupBatch())
    client.Append(v1.AppendRequest(stream=stream, events=payloads("late")))
    events = reader.batch()
    assert events is not None and [each.payload for each in events] == [b"late"]
    reader.send(next=v1.NextGroupBatch())
    reader.call.cancel()  # while it waits
    until(lambda: called(client, "group.readers", group=group) == [[]])


def test_batches_are_requested_ahead_and_committed_by_their_numbers(client: Client, group: str, stream: str) -> None:
    out = f"{stream}-ahead"
    called(client, "streams.create", name=out)
    reader = GroupConversation(client, group, delivery="exactly_once", batch_events=5)
    for _ in range(3):
        reader.send(next=v1.NextGroupBatch())
    batches = [reader.answer()[1] for _ in range(3)]
    assert [batch.number for batch in batches] == [1, 2, 3]
    copied = [event for batch in batches[:2] for event in batch.events]
    outputs = [v1.GroupOutput(stream=out, events=copied)]
    assert reader.ask(commit=v1.CommitGroup(batch=2, outputs=outputs))[0] == "committed"
    reader.call.cancel()  # the third is not committed
    again = GroupConversation(client, group, delivery="exactly_once", batch_events=5)
    assert [each.payload for each in again.next() or ()] == NUMBERS[10:15]
    assert sorted(int(each.payload) for each in read(client, out)) == list(range(10))
    assert again.ask(commit=v1.CommitGroup(batch=1))[0] == "committed"
    again.send(commit=v1.CommitGroup(batch=1))
    assert refused(again.answer) == (grpc.StatusCode.INVALID_ARGUMENT, "invalid_argument")


def test_a_commit_and_a_leave_do_not_wait_for_batches_requested_before(client: Client, stream: str) -> None:
    group = f"{stream}-commits"
    called(client, "group.open", group=group, streams=[stream])
    client.Append(v1.AppendRequest(stream=stream, events=payloads("a")))
    reader = GroupConversation(client, group, delivery="exactly_once")
    reader.send(next=v1.NextGroupBatch())
    reader.send(next=v1.NextGroupBatch())  # there is no second batch
    assert reader.answer()[1].number == 1
    assert reader.ask(commit=v1.CommitGroup(batch=1))[0] == "committed"
    assert reader.ask(leave=v1.LeaveGroup())[0] == "left"
    reader.close()
    assert called(client, "group.readers", group=group) == [[]]
    waiting = GroupConversation(client, group)
    waiting.send(next=v1.NextGroupBatch())
    waiting.send(next=v1.NextGroupBatch())
    assert refused(waiting.answer)[1] == "invalid_argument"  # the first `next` accepts nothing, but the second would


def test_a_reader_that_never_commits_gets_so_many_batches_and_then_waits(client: Client, stream: str) -> None:
    group, most = f"{stream}-never", limits.GROUP_BATCHES_AHEAD_MAX
    client.Append(v1.AppendRequest(stream=stream, events=payloads(*map(str, range(most + 10)))))
    called(client, "group.open", group=group, streams=[stream])
    reader = GroupConversation(client, group, delivery="exactly_once", batch_events=1)
    for _ in range(most):
        reader.send(next=v1.NextGroupBatch())
    assert [reader.answer()[1].number for _ in range(most)] == list(range(1, most + 1))
    assert reader.ask(next=v1.NextGroupBatch(timeout_ms=100))[0] == "nothing"
    reader.send(next=v1.NextGroupBatch())
    assert reader.ask(commit=v1.CommitGroup(batch=1))[0] == "committed"
    assert reader.answer()[1].number == most + 1
    for _ in range(most + 1):
        reader.send(next=v1.NextGroupBatch())
    assert refused(reader.answer)[1] == "invalid_argument"


def test_a_checkpoint_is_answered_among_requested_batches(client: Client, group: str, broker: BrokerProcess) -> None:
    called(client, "group.open", group=f"{group}-ahead", streams=[group.removesuffix("-group")], refresh_s=0.1)
    reader = GroupConversation(client, f"{group}-ahead", delivery="exactly_once")
    for _ in range(3):
        reader.send(next=v1.NextGroupBatch())
    assert reader.answer()[1].number == 1
    with ab.connect(broker.log.parent / "river") as store, ThreadPoolExecutor(1) as threads:
        pending = threads.submit(store.groups.open(f"{group}-ahead").checkpoint, "c1")
        assert reader.answer()[0] == "checkpoint"
        assert reader.ask(commit=v1.CommitGroup(batch=1))[0] == "committed"
        reader.send(checkpoint_taken=v1.CheckpointTaken())
        assert sum(pending.result(PATIENCE_S).offsets.values()) == 20
    reader.call.cancel()


class TransactionConversation(Conversation):
    """A transaction."""

    def __init__(self, client: Client, **opening: Any) -> None:
        super().__init__(client, "Transact", v1.TransactRequest)
        name, self.opened = self.ask(open=v1.OpenTransaction(**opening))
        assert name == "opened"

    def write(self, stream: str, *given: str) -> None:
        assert self.ask(write=v1.TransactionWrite(stream=stream, events=payloads(*given)))[0] == "done"

    def flush(self, number: int | None = None) -> None:
        assert self.ask(flush=v1.TransactionFlush(number=number))[0] == "done"


def test_a_transaction_shows_all_or_nothing(client: Client, stream: str) -> None:
    other = f"{stream}-other"
    called(client, "streams.create", name=other)
    transaction = TransactionConversation(client)
    transaction.write(stream, "a", "b")
    transaction.write(other, "c")
    transaction.flush()
    assert not read(client, stream) and not read(client, other)
    name, ended = transaction.ask(commit=v1.TransactionCommit())
    assert (name, ended.state, sorted(ended.events.values())) == ("ended", "committed", [1, 2])
    assert [each.payload for each in read(client, stream)] == [b"a", b"b"]
    assert [each.payload for each in read(client, other)] == [b"c"]
    dropped = TransactionConversation(client)
    dropped.write(stream, "never")
    assert dropped.ask(abort=v1.TransactionAbort(reason="test"))[1].state == "aborted"
    assert len(read(client, stream)) == 2


def test_a_transaction_is_resumed_by_its_id_and_a_repeat_takes_effect_once(client: Client, stream: str) -> None:
    transaction = TransactionConversation(client, caller="loader7")
    transaction.write(stream, "a")
    transaction.flush(1)
    transaction.write(stream, "lost")
    transaction.call.cancel()
    again = TransactionConversation(client, id=transaction.opened.id, caller="loader7")
    again.write(stream, "a")
    again.flush(1)  # sent again: it was flushed before
    again.write(stream, "b")
    again.flush(2)
    again.ask(commit=v1.TransactionCommit())
    repeated = TransactionConversation(client, id=transaction.opened.id, caller="loader7")
    assert repeated.opened.state == "committed"
    assert repeated.ask(commit=v1.TransactionCommit())[1].state == "committed"
    assert sorted(each.payload for each in read(client, stream)) == [b"a", b"b"]


def test_the_lease_of_a_transaction_lasts_as_long_as_the_call(client: Client, stream: str) -> None:
    transaction = TransactionConversation(client, lease_ms=1_000)
    transaction.write(stream, "a")
    transaction.flush()
    before = transaction.opened.expires_us
    listed = lambda: called(client, "transactions.list")[0]  # noqa: E731
    until(
        lambda: any(
            each["id"] == transaction.opened.id and each["expires_at"] > before + 1_000_000 for each in listed()
        )
    )
    assert transaction.ask(commit=v1.TransactionCommit())[1].state == "committed"


@pytest.mark.parametrize(
    ("name", "requests", "code"),
    [
        ("ReadGroup", [v1.ReadGroupRequest(next=v1.NextGroupBatch())], "invalid_argument"),
        ("ReadGroup", [v1.ReadGroupRequest(open=v1.OpenGroupReader(group="iot/none", reader="r"))], "group_not_found"),
        ("ReadGroup", [v1.ReadGroupRequest(open=v1.OpenGroupReader(group="", reader=""))], "invalid_name"),
        ("ReadGroup", [v1.ReadGroupRequest()], "invalid_argument"),
        ("ReadGroup", [], "invalid_argument"),
        ("Transact", [v1.TransactRequest(commit=v1.TransactionCommit())], "invalid_argument"),
        ("Transact", [v1.TransactRequest(open=v1.OpenTransaction(id="none"))], "transaction_not_found"),
        ("Transact", [v1.TransactRequest(open=v1.OpenTransaction(caller="a b"))], "invalid_argument"),
        ("Transact", [v1.TransactRequest(open=v1.OpenTransaction())] * 2, "invalid_argument"),
        (
            "Transact",
            [
                v1.TransactRequest(open=v1.OpenTransaction()),
                v1.TransactRequest(write=v1.TransactionWrite(stream="iot/none", events=payloads("x"))),
            ],
            "stream_not_found",
        ),
    ],
)
def test_requests_that_do_not_fit_end_the_call_with_one_error(
    client: Client, name: str, requests: list[Any], code: str
) -> None:
    status, found = refused(lambda: list(getattr(client, name)(iter(requests))))
    assert (found, status is grpc.StatusCode.INTERNAL) == (code, False)


@pytest.mark.slow
def test_kill_9_of_a_broker_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/in", scaling=2)
        store.streams.create("s/out")
        with store.writer("s/in") as writer:
            for number in range(2_000):
                writer.write(b"%d" % number, key=f"k{number % 10}")
        store.groups.open("s/g", streams="s/in", end="tail", lease_s=2.0)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with (
        BrokerProcess(tmp_path / "store", folder=tmp_path / "one") as one,
        BrokerProcess(tmp_path / "store", folder=tmp_path / "two") as two,
        Client(one.addresses["grpc"]) as first,
        Client(two.addresses["grpc"]) as second,
    ):
        transaction = TransactionConversation(first, caller="c")
        transaction.write("s/out", "-1")
        transaction.flush(1)
        transaction.write("s/out", "-2")
        reader = GroupConversation(first, "s/g", delivery="exactly_once", batch_events=300)

        def commit(reader: GroupConversation, events: list[v1.Event]) -> None:
            copied = [v1.Event(payload=each.payload, key=each.key) for each in events]
            reader.ask(commit=v1.CommitGroup(outputs=[v1.GroupOutput(stream="s/out", events=copied)]))

        for _ in range(2):
            events = reader.next()
            assert events is not None
            commit(reader, events)
        assert reader.next()
        one.kill()  # with a batch that is not committed, and an event that is not flushed
        with pytest.raises(grpc.RpcError) as gone:
            reader.next()
        assert gone.value.code() is grpc.StatusCode.UNAVAILABLE and not error_of(gone.value).code
        reader = GroupConversation(second, "s/g", delivery="exactly_once", batch_events=300)
        while (events := reader.next()) is not None:
            commit(reader, events)
        transaction = TransactionConversation(second, id=transaction.opened.id, caller="c")
        transaction.write("s/out", "-1")
        transaction.flush(1)
        transaction.write("s/out", "-2")
        transaction.ask(commit=v1.TransactionCommit())
    with ab.connect(tmp_path / "store") as store, store.reader("s/out", end="tail") as out:
        assert sorted(int(event.body) for event in out) == [-2, -1, *range(2_000)]
        assert list(store.check()) == []


@pytest.mark.slow
def test_a_broker_that_ends_notifies_readers_and_transactions(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/in")
        store.groups.open("s/g", streams="s/in")
    with BrokerProcess(tmp_path / "store", folder=tmp_path) as broker, Client(broker.addresses["grpc"]) as client:
        reader = GroupConversation(client, "s/g")
        reader.send(next=v1.NextGroupBatch())  # waits
        transaction = TransactionConversation(client)  # idle
        broker.signal()
        for each in (reader, transaction):
            with pytest.raises(grpc.RpcError) as ended:
                each.answer()
            assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
            assert error_of(ended.value).code == "draining"
        assert broker.wait() == 0
    with ab.connect(tmp_path / "store") as store:
        assert store.groups.open("s/g").readers == []
