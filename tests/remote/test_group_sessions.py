"""Group readers over a connection: what embedded readers promise, and what happens when brokers and clients vanish."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

import anabranch as ab
from anabranch.errors import PermissionDenied, ReaderNotInGroup
from anabranch.remote.connection import Connection
from anabranch.remote.group_reader import RemoteGroupReader
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import OpenGuard
from anabranch.store import Store
from anabranch.wire.frames import Frame, pack_table, unpack_table
from tests.remote.kit import SessionServer, connection_to, served
from tests.waiting import until

COUNT = 1_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with ab.connect(tmp_path / "store", create=True) as made:
        made.scopes.create("s")
        made.streams.create("s/a", scaling=3)
        made.streams.create("s/out")
        yield made


def write(store: Store, count: int = COUNT, start: int = 0) -> None:
    with store.writer("s/a") as writer:
        for number in range(start, start + count):
            writer.write(b"%d" % number, key=str(number % 7))


def opened(connection: Connection, group: ab.ReaderGroup, name: str = "r", **options: Any) -> RemoteGroupReader:
    return RemoteGroupReader(connection, Runtime(), group.name, name, group.time_window, **options)


def numbers(events: Any) -> list[int]:
    return [int(event.body) for event in events]


def test_events_arrive_once_with_all_their_fields(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    with served(store) as connection, opened(connection, group) as reader:
        events = list(reader)
        assert sorted(numbers(events)) == list(range(COUNT))
        for event in events[:: COUNT // 5]:
            same = store.fetch(event.pointer)
            assert (same.key, same.body, same.time, same.appended_us) == (
                event.key,
                event.body,
                event.time,
                event.appended_us,
            )
    assert group.unread().events == 0
    assert group.readers == []


def test_batches_are_those_of_an_embedded_reader(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    with group.reader("embedded") as reader:
        expected = pa.Table.from_batches(list(reader.batches()))
    group.reset("head", end="tail")
    with served(store) as connection, opened(connection, group) as remote:
        found = pa.Table.from_batches(list(remote.batches()))
    order = [("_segment", "ascending"), ("_offset", "ascending")]
    assert found.sort_by(order).equals(expected.sort_by(order))
    assert found.schema.metadata == expected.schema.metadata


def test_a_reader_that_ends_with_an_error_does_not_accept_its_last_event(store: Store) -> None:
    write(store, 10)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    with served(store) as connection:
        with pytest.raises(ZeroDivisionError), opened(connection, group) as reader:
            _fail_at_the_fifth(reader)
        until(lambda: not group.readers)
        assert group.unread().events == 6


def _fail(name: str) -> None:
    raise ZeroDivisionError


def _fail_at_the_fifth(reader: RemoteGroupReader) -> None:
    for count, _ in enumerate(reader, 1):
        if count == 5:
            raise ZeroDivisionError


def test_a_reader_whose_client_vanishes_leaves_the_group(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a")
    with served(store) as connection:
        reader = opened(connection, group)
        first = next(iter(reader))
        reader._session.cancel()
        until(lambda: not group.readers)
        with opened(connection, group, "other") as other:
            assert int(next(iter(other)).body) == int(first.body)


def test_a_reader_opened_elsewhere_under_its_name_ends(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a")
    with served(store) as connection, opened(connection, group) as reader:
        taken = numbers(event for event, _ in zip(reader, range(10), strict=False))
        with group.reader("r") as thief:
            assert next(iter(thief))
            with pytest.raises(ReaderNotInGroup):
                taken.extend(numbers(reader))
        assert len(taken) < COUNT


def test_a_reader_of_a_group_that_is_reset_ends(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a")
    with served(store) as connection, opened(connection, group) as reader:
        next(iter(reader))
        group.rewind()
        with pytest.raises(ReaderNotInGroup):
            list(reader)


def test_checkpoints_call_back_at_the_client(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a")
    with served(store) as connection, opened(connection, group) as reader:
        reached: list[tuple[str, int]] = []
        got: list[int] = []
        reader.on_checkpoint(lambda name: reached.append((name, len(got))))
        with pytest.raises(TimeoutError):
            group.checkpoint("c", timeout_s=0.01)
        while not reached:
            batch = reader.read(0.05)
            got.extend([0] * (0 if batch is None else batch.num_rows))
        (name, before), *_ = reached
        assert name == "c"
        until(lambda: group.checkpoints)
        assert sum(offset for _, offset in group.checkpoints[0].offsets.items()) == before


def test_an_error_of_a_checkpoint_callback_is_raised_where_events_are_requested(store: Store) -> None:
    write(store, 10)
    group = store.groups.open("s/g", streams="s/a")
    with served(store) as connection, opened(connection, group) as reader:
        reader.on_checkpoint(_fail)
        with pytest.raises(TimeoutError):
            group.checkpoint("c", timeout_s=0.01)
        with pytest.raises(ZeroDivisionError):
            list(reader)


def test_coroutines_read_and_cancel(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a")

    async def consume(reader: RemoteGroupReader) -> list[int]:
        got: list[int] = []
        async for event in reader:
            got.append(int(event.body))
            if len(got) == COUNT:
                break
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(reader)), 0.05)
        return got

    with served(store) as connection, opened(connection, group) as reader:
        assert sorted(asyncio.run(consume(reader))) == list(range(COUNT))


def test_output_is_written_once_with_its_positions(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    with served(store) as connection, opened(connection, group, delivery="exactly_once") as reader:
        for batch in reader.batches():
            reader.commit({"s/out": batch.select(["key", "time", "payload"])})
    with store.reader("s/out", end="tail") as out:
        assert sorted(numbers(out)) == list(range(COUNT))
    assert group.unread().events == 0


class _NoOutput(OpenGuard):
    def authorize(self, principal: Any, operation: Any, resource: str | None, *, verb: str = "") -> None:
        if operation == "write" and resource == "s/out":
            raise PermissionDenied("no")


def test_output_needs_the_right_to_write_its_stream(store: Store) -> None:
    write(store, 10)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    server = SessionServer(store, _NoOutput())
    with opened(connection_to(server.url), group, delivery="exactly_once") as reader:
        batch = next(reader.batches())
        with pytest.raises(PermissionDenied):
            reader.commit({"s/out": batch.select(["key", "time", "payload"])})
    assert group.unread().events == 10
    server.end()


# two brokers

_BROKER = """
import sys
import anabranch as ab
from anabranch.wire.frames import Frame, pack_table, unpack_table
from tests.remote.kit import SessionServer
server = SessionServer(ab.connect(sys.argv[1]))
print(server.url, flush=True)
sys.stdin.read()
"""


@contextmanager
def two_brokers(folder: Path) -> Iterator[tuple[Connection, subprocess.Popen[str]]]:
    """A connection to two broker processes of one store, and the one that it uses first."""
    command = [sys.executable, "-c", _BROKER, str(folder)]
    processes = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd())
        for _ in range(2)
    ]
    try:
        urls = [process.stdout.readline().strip() for process in processes if process.stdout]
        yield connection_to(*urls), processes[0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_reader_continues_on_another_broker_and_gets_nothing_twice(store: Store, tmp_path: Path) -> None:
    write(store, 20_000)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    with two_brokers(tmp_path / "store") as (connection, used), opened(connection, group) as reader:
        got: list[int] = []
        for event in reader:
            got.append(int(event.body))
            if len(got) == 5_000:
                used.kill()
                used.wait()
    assert sorted(got) == list(range(20_000))
    assert group.unread().events == 0


def test_output_is_written_once_whichever_broker_dies(store: Store, tmp_path: Path) -> None:
    write(store, 20_000)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    options: Any = {"delivery": "exactly_once", "batch_rows": 1_000}
    with two_brokers(tmp_path / "store") as (connection, used), opened(connection, group, **options) as reader:
        for count, batch in enumerate(reader.batches(), 1):
            if count == 5:  # between a batch and its output
                used.kill()
                used.wait()
            reader.commit({"s/out": batch.select(["key", "time", "payload"])})
    with store.reader("s/out", end="tail") as out:
        assert sorted(numbers(out)) == list(range(20_000))


def test_a_batch_that_an_interrupted_call_left_behind_is_handed_out_again(store: Store) -> None:
    write(store)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    with served(store) as connection, opened(connection, group, batch_rows=50) as reader:
        got: list[int] = []
        receive = reader._session._await_frame

        def interrupted(opened: int) -> Any:
            reader._session._await_frame = receive  # type: ignore[method-assign]
            receive(opened)
            raise KeyboardInterrupt  # Ctrl-C, with the answer on its way

        events = iter(reader)
        got.extend(int(next(events).body) for _ in range(50))
        reader._session._await_frame = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            next(events)
        got.extend(numbers(reader))
    assert sorted(got) == list(range(COUNT))


class _RawSession:
    """A session whose messages a test sends itself, and can send again elsewhere, as a network that repeats bytes does."""

    def __init__(self, server: SessionServer, opening: Frame) -> None:
        client = fl.connect(server.url)
        descriptor = fl.FlightDescriptor.for_command(opening.pack().to_pybytes())
        self._writer, self._reader = client.do_exchange(descriptor)
        self.opened = self._answer()

    def ask(self, frame: Frame) -> Frame:
        self._writer.write_metadata(frame.pack())
        return self._answer()

    def _answer(self) -> Frame:
        while True:
            frame = Frame.unpack(self._reader.read_chunk().app_metadata)
            if frame.verb != "probe":
                return frame

    def end(self) -> None:
        self._reader.cancel()


@pytest.fixture
def pair(store: Store, tmp_path: Path) -> Iterator[tuple[SessionServer, SessionServer]]:
    with ab.connect(tmp_path / "store") as second:
        brokers = SessionServer(store), SessionServer(second)
        yield brokers
        for each in brokers:
            each.end()


@pytest.mark.parametrize("left", [False, True], ids=["while it lasts", "after it has ended"])
def test_bytes_of_a_session_that_reach_another_broker_too_change_nothing(
    store: Store, pair: tuple[SessionServer, SessionServer], left: bool
) -> None:
    write(store, 30)
    group = store.groups.open("s/g", streams="s/a", end="tail")
    fields: dict[str, Any] = {"group": group.name, "ident": group.id, "reader": "r", "delivery": "exactly_once"}
    opening = Frame("group.read", 0, {**fields, "batch_rows": 5, "stored": False, "consumer": "c0", "attempt": 1})
    session = _RawSession(pair[0], opening)
    own = {"session": session.opened.fields["session"]}
    whole = {**own, "batch": 1, "handed_out": 0, "whole": True}
    begin = Frame("next", 1, {**own, "batch": 0, "handed_out": 0, "timeout_s": 5.0})
    batch = session.ask(begin)
    rows = unpack_table(batch.data).select(["key", "time", "payload"])
    requests = [
        Frame("output", 2, {**whole, "stream": "s/out"}, pack_table(rows)),
        Frame("commit", 3, whole),
        Frame("close", 0, {**whole, "done": True}),
    ]
    sent = 0
    if left:
        for request in requests:
            session.ask(request)
        sent = rows.num_rows
    repeated = _RawSession(pair[1], opening)
    assert (repeated.opened.verb == "opened") == left, "a repeat replaces no session"
    if left:
        assert repeated.ask(begin).verb == "ended", "the broker takes nothing of it"
    for request in () if left else requests:
        session.ask(request)
        sent = rows.num_rows
    repeated.end()
    session.end()
    until(lambda: group.readers == [])
    with store.reader("s/out", end="tail") as out:
        assert len(numbers(out)) == sent
    with group.reader("last", delivery="exactly_once") as reader:
        for each in reader.batches():
            reader.commit({"s/out": each.select(["key", "time", "payload"])})
    with store.reader("s/out", end="tail") as out:
        assert sorted(numbers(out)) == list(range(30))
