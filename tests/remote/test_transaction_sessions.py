"""Transactions over a connection: nothing is lost or doubled when a broker dies, whatever it had done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    Closed,
    Conflict,
    InvalidArgument,
    PermissionDenied,
    SchemaMismatch,
    StreamNotFound,
    TransactionAborted,
    TransactionNotFound,
)
from anabranch.model.transaction import TransactionState
from anabranch.remote.connection import Connection
from anabranch.remote.transactions import RemoteTransaction
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import OpenGuard
from anabranch.store import Store
from tests.remote.kit import SessionServer, connection_to, served
from tests.remote.test_group_sessions import two_brokers

COLUMNS = pa.schema([("device", pa.string()), ("n", pa.int64())])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "store", create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/a", scaling=3)
        made.streams.create("s/typed", schema=COLUMNS, key="device", scaling=2)
        yield made


def begun(connection: Connection, ident: str | None = None, **options: Any) -> RemoteTransaction:
    return RemoteTransaction(connection, Runtime(), ident, **options)


def numbers(store: Store, stream: str = "s/a") -> list[int]:
    with store.reader(stream, end="tail") as reader:
        return sorted(int(event.body) for event in reader)


def test_events_of_two_streams_appear_together(store: Store) -> None:
    with served(store) as connection, begun(connection) as transaction:
        raw, typed = transaction.writer("s/a"), transaction.writer("s/typed")
        for number in range(100):
            raw.write(b"%d" % number, key=str(number % 5))
            typed.write({"device": "d", "n": number})
        typed.write_batch(pa.table({"device": ["e"] * 10, "n": range(10)}))
        assert transaction.writer("s/a") is raw
        assert numbers(store) == []
    assert numbers(store) == list(range(100))
    with store.reader("s/typed", end="tail") as reader:
        assert [event.body["n"] for event in reader if event.key == "d"] == list(range(100))
    (info,) = store.transactions.list()
    assert info.state is TransactionState.COMMITTED
    assert sum(info.events.values()) == 210


def test_an_error_in_the_block_aborts(store: Store) -> None:
    with served(store) as connection:
        transaction = begun(connection)
        with pytest.raises(ZeroDivisionError), transaction:
            _write_and_fail(transaction)
        with pytest.raises(TransactionAborted):
            begun(connection, transaction.id)
    assert numbers(store) == []


def _write_and_fail(transaction: RemoteTransaction) -> None:
    transaction.writer("s/a").write(b"1")
    transaction.flush()
    raise ZeroDivisionError


def test_what_the_store_refuses_is_refused(store: Store) -> None:
    with served(store) as connection:
        with pytest.raises(TransactionNotFound):
            begun(connection, "nothing")
        with pytest.raises(InvalidArgument, match="lease"):
            begun(connection, lease_s=-1)
        transaction = begun(connection)
        with pytest.raises(StreamNotFound):
            transaction.writer("s/nothing")
        writer = transaction.writer("s/typed")
        with pytest.raises(SchemaMismatch):
            writer.write({"device": "d", "m": 1})
        with pytest.raises(SchemaMismatch):
            writer.write_batch(pa.table({"other": [1]}))
        writer.write({"device": "d", "n": 1})
        transaction.commit()
        transaction.commit()
        with pytest.raises(Closed):
            writer.write({"device": "d", "n": 2})
        transaction.close()
    assert sum(store.transactions.list()[0].events.values()) == 1


def test_a_resumed_transaction_has_what_was_flushed(store: Store) -> None:
    with served(store) as connection:
        first = begun(connection)
        first.writer("s/a").write(b"1")
        first.flush()
        first.writer("s/a").write(b"2")
        first.close()
        with begun(connection, first.id) as second:
            second.writer("s/a").write(b"3")
    assert numbers(store) == [1, 3]


def test_a_commit_elsewhere_without_events_written_here_is_a_conflict(store: Store) -> None:
    with served(store) as connection:
        first = begun(connection)
        first.writer("s/a").write(b"1")
        store.transaction(first.id).commit()
        with pytest.raises(Conflict, match="without 1 event"):
            first.commit()
        first.close()


class _ReadOnly(OpenGuard):
    def authorize(self, principal: Any, operation: Any, resource: str | None, *, verb: str = "") -> None:
        if operation == "write" and resource == "s/a":
            raise PermissionDenied("no")


def test_a_transaction_needs_the_right_to_write_its_streams(store: Store) -> None:
    server = SessionServer(store, _ReadOnly())
    connection = connection_to(server.url)
    transaction = begun(connection)
    with pytest.raises(PermissionDenied):
        transaction.writer("s/a")
    transaction.close()
    own = store.transaction()
    own.writer("s/a").write(b"1")
    own.flush()
    with pytest.raises(PermissionDenied):
        begun(connection, own.id)
    server.end()


@pytest.mark.parametrize(
    "when", [pytest.param("before a flush", marks=pytest.mark.slow), "after a flush", "before the commit"]
)
def test_a_transaction_continues_on_another_broker(store: Store, tmp_path: Path, when: str) -> None:
    with two_brokers(tmp_path / "store") as (connection, used), begun(connection) as transaction:
        writer = transaction.writer("s/a")
        for number in range(3_000):
            writer.write(b"%d" % number, key=str(number % 7))
            if number == 1_000:
                writer.staged()  # sent, and not flushed
            if number == 1_500 and when != "before a flush":
                transaction.flush()
            if number == 2_000 and when != "before the commit":
                used.kill()
                used.wait()
        if when == "before the commit":
            writer.staged()
            used.kill()
            used.wait()
    assert numbers(store) == list(range(3_000))


@pytest.mark.parametrize("verb", ["flush", "commit"])
def test_a_flush_or_commit_whose_answer_is_lost_counts_once(store: Store, verb: str) -> None:
    servers = [SessionServer(store), SessionServer(store)]
    transaction = begun(connection_to(*(server.url for server in servers)))
    writer = transaction.writer("s/a")
    for number in range(100):
        writer.write(b"%d" % number)
    writer.staged()
    send = servers[0].lose_answers(verb)
    getattr(transaction, verb)()
    assert send.lost, "the answer was lost"
    if verb == "flush":
        writer.write(b"100")
    transaction.commit()
    transaction.close()
    assert numbers(store) == list(range(100 if verb == "commit" else 101))
    for server in servers:
        server.end()
