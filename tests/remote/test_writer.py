"""The writer of a broker's stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.errors import (
    ConditionFailed,
    InvalidArgument,
    SchemaMismatch,
    StreamNotFound,
    StreamSealed,
    TooLarge,
)
from anabranch.remote.connection import Connection
from anabranch.remote.writer import RemoteWriter
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.remote.servers import served
from tests.store.helpers import SCHEMA, bodies_of, store_at


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at("sqlite", tmp_path) as made:
        made.streams.create("s/a", scaling=2)
        made.streams.create("s/typed", schema=SCHEMA, key="device", time="at", scaling=2)
        yield made


@pytest.fixture
def connection(store: Store) -> Iterator[Connection]:
    with served(store) as made:
        yield made


def writer(connection: Connection, stream: str = "s/a", **options: object) -> RemoteWriter:
    return RemoteWriter(connection, Runtime(), stream, **options)  # type: ignore[arg-type]


def test_each_event_is_acknowledged_with_its_pointer(connection: Connection, store: Store) -> None:
    with writer(connection) as w:
        acks = [w.write(b"%d" % i, key=f"k{i % 7}") for i in range(1_000)]
        for i, ack in enumerate(acks):
            assert store.fetch(ack.result(30)).body == b"%d" % i
    assert store.producers.list("s/a") == []  # an unnamed writer leaves nothing behind


def test_batches_land_in_order_and_whole(connection: Connection, store: Store) -> None:
    with writer(connection) as w:
        acks = [w.write_batch(pa.table({"key": ["k"] * 5_000, "payload": [b"%d" % i] * 5_000})) for i in range(10)]
        w.flush()
        assert all(sum(each.stop - each.start for each in ack.result(0)) == 5_000 for ack in acks)
    assert bodies_of(store, "s/a") == [b"%d" % i for i in range(10) for _ in range(5_000)]


def test_typed_events_and_columns_gained_meanwhile(connection: Connection, store: Store) -> None:
    with writer(connection, "s/typed") as w:
        w.write({"device": "d", "at": 1_700_000_000_000_000, "n": 1})
        store.streams.evolve("s/typed", pa.schema([*SCHEMA, ("more", pa.string())]))
        w.write({"device": "d", "n": 2, "more": "x"})
        with pytest.raises(SchemaMismatch):
            w.write({"nothing": 1})
        w.flush()
    assert [(each["n"], each["more"]) for each in bodies_of(store, "s/typed")] == [(1, None), (2, "x")]


@pytest.mark.parametrize("number", ["1", 1.5, True, -1, 2**63])
def test_fences_and_conditions_that_are_no_numbers_of_a_catalog_are_refused_at_once(
    connection: Connection, store: Store, number: object
) -> None:
    with pytest.raises(InvalidArgument, match="expected `fence` as an integer"):
        writer(connection, fence=number)
    with writer(connection, fence=0) as w:
        with pytest.raises(InvalidArgument, match="expected `expected` as an integer"):
            w.write(b"x", key="k", expected=number)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="expected `expected` as an integer"):
            w.write_batch(pa.table({"key": ["k"], "payload": [b"x"]}), expected=number)  # type: ignore[arg-type]
        w.write(b"first", key="k", expected=0).result(30)
    assert bodies_of(store, "s/a") == [b"first"]


def test_a_refused_batch_does_not_stop_later_ones(connection: Connection, store: Store) -> None:
    with writer(connection, fence=0) as w:
        first = w.write(b"a", key="k", expected=0)
        refused = w.write(b"b", key="k", expected=0)
        last = w.write(b"c", key="k")
        assert first.result(30).offset == 0 and last.result(30).offset == 1
        with pytest.raises(ConditionFailed):
            refused.result(30)
    assert bodies_of(store, "s/a") == [b"a", b"c"]


def test_a_sealed_stream_refuses_what_was_accepted(connection: Connection, store: Store) -> None:
    w = writer(connection)
    w.write(b"a").result(30)
    store.streams.seal("s/a")
    with pytest.raises(StreamSealed):
        w.write(b"b").result(30)
    w.close()
    with pytest.raises(StreamSealed):
        writer(connection)
    with pytest.raises(StreamNotFound):
        writer(connection, "s/none")


def test_a_named_writer_fences_off_the_one_before(connection: Connection, store: Store) -> None:
    one = writer(connection, writer_id="me")
    one.write(b"1").result(30)
    with writer(connection, writer_id="me") as two:
        two.write(b"2").result(30)
        with pytest.raises(Exception, match=r"epoch|fence"):
            one.write(b"3").result(30)
    one.close()
    assert sorted(bodies_of(store, "s/a")) == [b"1", b"2"]


def test_times_are_noted_after_what_was_written(connection: Connection, store: Store) -> None:
    with writer(connection, "s/typed", writer_id="w") as w:
        w.write({"device": "d", "at": 1_700_000_000_000_000, "n": 1})
        w.note_time(1_700_000_000_000_000)
        assert store.watermarks.get("s/typed") is not None
        with pytest.raises(InvalidArgument):
            w.note_time(1_600_000_000_000_000)


def test_a_column_that_another_thread_has_taken_up_meanwhile_is_known(connection: Connection, store: Store) -> None:
    with writer(connection, "s/typed") as w:
        known, checker = w._schema, w._checker
        store.streams.add_columns("s/typed", {"late": "int64"})

        assert checker is not None
        check = checker.checked

        def checked(event: dict[str, int]) -> None:
            checker.checked = check  # type: ignore[method-assign]
            w.write({"late": 1})  # by another thread, behind the check by the columns known until now
            check(event)

        checker.checked = checked  # type: ignore[assignment, method-assign]
        w.write({"late": 2})
        assert w._schema is not known
    with store.reader("s/typed", columns=["late"]) as reader:
        assert sorted(event.body["late"] for event in reader) == [1, 2]


def test_what_is_too_large_is_refused_at_once_and_what_is_at_the_limit_is_not(connection: Connection) -> None:
    runtime = Runtime(settings=Settings(large_event_bytes_max=1_000))
    raw, typed = RemoteWriter(connection, runtime, "s/a"), RemoteWriter(connection, runtime, "s/typed")
    assert raw.write(bytes(1_000)).result(30).offset == 0
    for mistake in (
        lambda: raw.write(bytes(1_001)),
        lambda: raw.write("é" * 501),
        lambda: raw.write_batch(pa.table({"payload": [b"", bytes(1_001)]})),
        lambda: typed.write({"device": "x" * 1_001}),
        lambda: typed.write_batch(pa.table({"device": ["x" * 1_001]})),
    ):
        with pytest.raises(TooLarge) as caught:
            mistake()
        assert (caught.value.size, caught.value.limit) in ((1_001, 1_000), (1_002, 1_000))
    raw.close()
    typed.close()


def test_a_producers_writes_are_numbered_one_by_one_and_go_on_after_a_restart(
    connection: Connection, store: Store
) -> None:
    with writer(connection, producer="p") as w:
        assert w.next_number == 0
        for number in range(10):
            w.write(b"%d" % number, key="k")
        w.write_batch(pa.table({"key": ["k"] * 5, "payload": [b"10"] * 5}))
        assert w.next_number == 11
    with writer(connection, producer="p") as again:
        assert again.next_number == 11
        with pytest.raises(InvalidArgument, match="sequence numbers are the condition"):
            again.write(b"x", expected=3)
        again.write(b"11", key="k").result(30)
    assert bodies_of(store, "s/a") == [b"%d" % number for number in (*range(10), *[10] * 5, 11)]
    assert [each.last_sequence for each in store.producers.list("s/a")] == [11]


def test_a_refused_write_of_a_producer_gives_its_number_to_none_after_it(connection: Connection, store: Store) -> None:
    w = writer(connection, "s/typed", producer="p")
    w.write({"device": "d", "n": 1}).result(30)
    with pytest.raises(SchemaMismatch):
        w.write({"device": "d", "n": 1 << 40})
    assert w.next_number == 1
    store.streams.seal("s/typed")
    with pytest.raises(StreamSealed):
        w.write({"device": "d", "n": 2}).result(30)
    with pytest.raises(StreamSealed):
        w.write({"device": "d", "n": 3})
    w.close()
    assert [body["n"] for body in bodies_of(store, "s/typed")] == [1]


def test_a_named_writer_takes_no_condition_and_an_unnamed_one_does(connection: Connection, store: Store) -> None:
    with writer(connection, writer_id="me") as named, pytest.raises(InvalidArgument, match="takes no `expected`"):
        named.write(b"x", expected=0)
    with writer(connection) as w:
        assert w.write(b"1", key="k").result(30).offset == 0
        assert w.write(b"2", key="k", expected=1).result(30).offset == 1
        with pytest.raises(ConditionFailed):
            w.write(b"no", key="k", expected=1).result(30)
        w.write(b"3", key="k")
    assert bodies_of(store, "s/a") == [b"1", b"2", b"3"]
