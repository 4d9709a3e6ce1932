"""The reader of a broker's stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import Closed, InvalidArgument, StreamNotFound, Truncated
from anabranch.reading.reader import Reader
from anabranch.reading.row_source import ReaderOptions, StreamDelivery
from anabranch.remote.broker_rows import BrokerRows
from anabranch.remote.connection import Connection
from anabranch.runtime.ports import Runtime
from anabranch.store import Store
from tests.remote.servers import served
from tests.store.helpers import SCHEMA, store_at
from tests.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at("sqlite", tmp_path) as made:
        made.streams.create("s/a", scaling=2)
        made.streams.create("s/typed", schema=SCHEMA, key="device", time="at", scaling=2)
        with made.writer("s/typed") as writer:
            for i in range(2_000):
                writer.write({"device": f"d{i % 5}", "at": 1_700_000_000_000_000 + i, "n": i})
        yield made


@pytest.fixture
def connection(store: Store) -> Iterator[Connection]:
    with served(store) as made:
        yield made


def reader(connection: Connection, stream: str = "s/typed", **options: Any) -> Reader:
    return Reader(BrokerRows(connection, Runtime(), stream, ReaderOptions(**options)), Runtime())


def test_events_and_batches_are_those_of_the_embedded_reader(connection: Connection, store: Store) -> None:
    for options in (
        {},
        {"columns": ["n"]},
        {"between": (1_700_000_000_000_100, 1_700_000_000_000_900), "columns": ["n", "device"]},
        {"start": ab.TAIL},
        {"end": ab.HEAD},
        {"batch_rows": 100},
    ):
        with reader(connection, **options) as remote, store.reader("s/typed", **options) as local:
            assert remote.schema == local.schema
            assert remote.to_arrow().sort_by("_offset").equals(local.to_arrow().sort_by("_offset"))
            assert remote.position == local.position
        with reader(connection, **options) as remote, store.reader("s/typed", **options) as local:
            here = {(e.pointer, e.key, e.time, e.appended_us, e.body["n"]) for e in local}
            assert {(e.pointer, e.key, e.time, e.appended_us, e.body["n"]) for e in remote} == here


def test_a_reader_continues_at_the_position_of_another(connection: Connection) -> None:
    with reader(connection) as first:
        events = iter(first)
        begun = [next(events).body["n"] for _ in range(700)]
        position = first.position
    with reader(connection, start=position) as second:
        assert sorted([*begun, *(event.body["n"] for event in second)]) == list(range(2_000))
    with reader(connection) as third:
        events = iter(third)
        begun = [next(events).body["n"] for _ in range(700)]
        rest = third.to_arrow()["n"].to_pylist()
        assert sorted([*begun, *rest]) == list(range(2_000))


async def test_a_follower_gets_what_is_appended_and_ends_with_the_seal(connection: Connection, store: Store) -> None:
    async with reader(connection, "s/a", follow=True) as follower:
        with store.writer("s/a") as writer:
            writer.write(b"1")
            writer.flush()
            events = aiter(follower)
            assert (await anext(events)).body == b"1"
            writer.write(b"2")
        assert (await anext(events)).body == b"2"
        store.streams.seal("s/a")
        assert [event async for event in events] == []
        assert follower.at_end


def test_reading_with_a_timeout_and_closing(connection: Connection, store: Store) -> None:
    follower = reader(connection, "s/a", follow=True)
    assert follower.read(0.01) is None
    with store.writer("s/a") as writer:
        writer.write(b"1")
    batch = follower.read(30.0)
    assert batch is not None and batch["payload"].to_pylist() == [b"1"]
    follower.close()
    with pytest.raises(Closed):
        follower.read()


def test_a_truncated_position_is_skipped(connection: Connection, store: Store) -> None:
    with reader(connection, batch_rows=100) as remote:
        start = remote.position
        store.streams.truncate("s/typed", ab.TAIL)
    with pytest.raises(Truncated):
        reader(connection, start=start)
    with store.writer("s/a") as writer:
        writer.write(b"1")
        writer.flush()
        with reader(connection, "s/a", follow=True) as follower:
            store.streams.truncate("s/a", ab.TAIL)
            writer.write(b"2")
            writer.flush()
            assert follower.skip_truncated() in (0, 1)
            assert next(iter(follower)).body == b"2"


def test_reading_continues_after_ctrl_c_without_loss_or_duplicates(connection: Connection) -> None:
    with reader(connection, batch_rows=100) as remote:
        real, pulls = remote._source.pull, iter(range(9))

        def pulled(*args: Any, **options: Any) -> StreamDelivery | None:
            found = real(*args, **options)
            if next(pulls, None) == 4:
                raise KeyboardInterrupt
            return found

        remote._source.pull = pulled  # type: ignore[method-assign]
        batches, seen = remote.batches(), []

        def go_on() -> None:
            for batch in batches:
                seen.extend(batch["n"].to_pylist())

        with pytest.raises(KeyboardInterrupt):
            go_on()
        assert seen
        go_on()
        assert sorted(seen) == list(range(2_000))


def test_a_reader_is_at_its_end_only_once_all_that_was_received_is_handed_out(connection: Connection) -> None:
    with reader(connection, batch_rows=100) as remote:
        first = remote.read()
        assert first is not None
        until(lambda: remote._source._call._ended)  # type: ignore[attr-defined]
        assert not remote.at_end
        assert first.num_rows + sum(batch.num_rows for batch in remote.batches()) == 2_000
        assert remote.at_end


def test_a_reader_that_could_not_begin_anew_does_not_take_that_for_the_end(
    connection: Connection, store: Store
) -> None:
    with reader(connection) as remote:
        next(iter(remote))
        store.streams.truncate("s/typed", ab.TAIL)
        for _ in range(2):
            with pytest.raises(Truncated):
                remote.read()
        assert remote.skip_truncated() == 1_999
        assert remote.read() is None


def test_bad_arguments_and_unknown_streams_are_refused(connection: Connection) -> None:
    with pytest.raises(StreamNotFound):
        reader(connection, "s/none")
    for options in ({"follow": True, "end": ab.TAIL}, {"batch_rows": 0}, {"by": "x"}, {"start": "nonsense"}):
        with pytest.raises(InvalidArgument):
            reader(connection, **options)


def test_arrow_consumers_take_the_reader_itself(connection: Connection) -> None:
    with reader(connection) as remote:
        assert pa.RecordBatchReader.from_stream(remote).read_all().num_rows == 2_000
    with reader(connection) as remote:
        assert remote.to_polars().height == 2_000


def test_a_following_readers_read_without_waiting_gets_what_is_there(connection: Connection, store: Store) -> None:
    store.streams.create("s/one")
    with store.writer("s/one") as writer:
        writer.write(b"0").result()
        for number in range(20):
            with reader(connection, "s/one", follow=True, start=store.cuts.after("s/one", events=number)) as following:
                batch = following.read()
                assert batch is not None and batch.column("payload").to_pylist() == [b"%d" % number]
                assert following.read() is None
            writer.write(b"%d" % (number + 1)).result()
