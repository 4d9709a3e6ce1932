"""What a reader group accepts, and when: three ways of delivery, output and position as one."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.catalog.state.transaction import PUBLISHED
from anabranch.errors import (
    AppendUncertain,
    DiskFull,
    ReaderNotInGroup,
    SchemaMismatch,
    StoreBusy,
    StreamNotFound,
)
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.position import StreamSegment
from anabranch.store import Store
from tests.postgres_server import shared_url
from tests.store.groups.kit import KEYS, complete, started, take, write
from tests.store.helpers import LostAnswers, bodies_of, sound
from tests.waiting import PATIENCE_S, until, until_ended


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("read_on", [True, False])
def test_output_of_unknown_outcome_is_written_once(store: Store, landed: bool, read_on: bool) -> None:
    store.streams.create("s/out")
    write(store, 0, 3)
    group = store.groups.open("s/g", streams=["s/a"])
    answers = LostAnswers(store.catalog)
    with group.reader("r", delivery="exactly_once") as reader:
        losses = 0
        while (batch := reader.read()) is not None:
            output = {"s/out": batch.select(["key", "payload"])}
            answers.lose(3, landed=landed)
            losses += 1
            with pytest.raises(AppendUncertain):
                reader.commit(output)
            if not read_on:
                group.reader("another").close()  # the group goes on meanwhile
                with reader._lock:
                    reader._assigned.sync_with_group()
                reader.commit(output)
                shared = reader._membership._shared
                assert shared.revision <= shared.stream.latest()
        reader.commit()
        assert losses > 1
    assert complete(bodies_of(store, "s/out"), 3) and len(bodies_of(store, "s/out")) == 3 * KEYS
    assert group.unread().events == 0
    with group.reader("r", delivery="exactly_once") as reader:
        assert reader.read() is None


@contextmanager
def failing(store: Store, error: Exception) -> Iterator[None]:
    """The transactions of this thread fail; those of other tasks do not."""
    writing, thread = store.catalog.writing, threading.get_ident()

    def fail(subject: Any = None) -> Any:
        if threading.get_ident() == thread:
            raise error
        return writing(subject)

    store.catalog.writing = fail  # type: ignore[method-assign]
    try:
        yield
    finally:
        store.catalog.writing = writing  # type: ignore[method-assign]


@pytest.mark.parametrize("error", [StoreBusy("locked"), DiskFull("no space is left"), AppendUncertain("lost")])
@pytest.mark.parametrize("gained", [True, False], ids=["gains a segment", "gives segments up"])
def test_a_failed_commit_that_is_retried_after_a_rebalance_is_written_once(
    store: Store, error: Exception, gained: bool
) -> None:
    store.streams.create("s/out")
    write(store, 0, 3)
    group = store.groups.open("s/g", streams=["s/a"])
    with ExitStack() as others, group.reader("r1", delivery="exactly_once") as reader:
        if gained:
            others.enter_context(group.reader("r2"))
            until(lambda: len(reader.segments) == 2)
        batch = reader.read(60)
        assert batch is not None
        output = {"s/out": batch.select(["key", "payload"])}
        with failing(store, error), pytest.raises(type(error)):
            reader.commit(output)
        before = len(reader.segments)
        if gained:
            others.close()
        else:
            others.enter_context(group.reader("r2"))
        until(lambda: len(reader.segments) != before)
        reader.commit(output)
        assert len(bodies_of(store, "s/out")) == batch.num_rows
        others.close()
        while group.unread().events:
            if (batch := reader.read(0.05)) is not None:
                reader.commit({"s/out": batch.select(["key", "payload"])})
    out = bodies_of(store, "s/out")
    if gained:  # else what the other reader read is not in the output
        assert complete(out, 3)
    assert len(set(out)) == len(out)


def test_a_commit_after_more_events_is_not_a_retry(store: Store) -> None:
    store.streams.create("s/out")
    write(store, 0, 2)
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r", delivery="exactly_once") as reader:
        events, written = iter(reader), []
        for number in range(2 * KEYS):
            body = next(events).body
            written.append(body)
            output = {"s/out": pa.table({"key": [str(number)], "payload": [body]})}
            with failing(store, StoreBusy("locked")):
                for _ in range(2):
                    with pytest.raises(StoreBusy):
                        reader.commit(output)
            if number % 3 == 0:
                reader.commit(output)
        reader.commit()
    assert bodies_of(store, "s/out") == written
    assert group.unread().events == 0


def test_after_an_error_only_unprocessed_events_are_delivered_again(store: Store) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
    with pytest.raises(ZeroDivisionError), group.reader("r") as reader:  # noqa: PT012
        for count, event in enumerate(reader, 1):
            last = event.body
            if count == 10:
                raise ZeroDivisionError
    with group.reader("r") as reader:
        again = take(reader, 5 * KEYS - 9)
    assert last in again and group.unread().events == 0


def test_after_a_clean_close_processed_events_are_not_delivered_again(store: Store) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        first = take(reader, 10)
    with group.reader("r") as reader:
        batch = reader.read()
        assert batch is not None
        rest = [*batch.column("payload").to_pylist()]
    with group.reader("r") as reader:
        rest += take(reader, 5 * KEYS - 10 - len(rest))
    assert complete([*first, *rest], 5)


def test_events_and_batches_may_be_mixed(store: Store) -> None:
    write(store, 0, 9)
    group = store.groups.open("s/g", streams=["s/a"], end=ab.TAIL)
    got: list[bytes] = []
    with group.reader("r", batch_rows=4) as reader:
        while True:
            got += [event.body for _, event in zip(range(3), reader, strict=False)]
            batch = reader.read(timeout_s=0.1)
            if batch is None:
                break
            got += batch.column("payload").to_pylist()
    assert len(got) == len(set(got)) == 9 * KEYS


def test_an_iteration_kept_beside_batches_repeats_no_event(store: Store) -> None:
    write(store, 0, 9)
    group = store.groups.open("s/g", streams=["s/a"], end=ab.TAIL)
    with group.reader("r", batch_rows=4) as reader:
        iteration = iter(reader)
        got = [event.body for _, event in zip(range(3), iteration, strict=False)]
        batch = reader.read(timeout_s=10.0)
        assert batch is not None
        got += batch.column("payload").to_pylist()
        got += [event.body for event in iteration]
    assert len(got) == len(set(got)) == 9 * KEYS


def test_at_most_once_accepts_before_it_hands_out(store: Store) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
    reader = group.reader("r", delivery="at_most_once")
    batch = reader.read()
    assert batch is not None and group.unread().events == 5 * KEYS - batch.num_rows
    reader.abandon()
    assert group.unread().events == 5 * KEYS - batch.num_rows


@pytest.mark.parametrize("landed", [True, False])
def test_at_most_once_hands_out_what_it_could_not_have_accepted_before(store: Store, landed: bool) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
    got: list[bytes] = []
    with group.reader("r", delivery="at_most_once", batch_rows=3) as reader:
        error = AppendUncertain("lost") if landed else StoreBusy("locked")
        sync = reader._assigned.sync_with_group
        losses = iter([False, True, False, True, True])

        def unreliable(**options: Any) -> None:
            lost = next(losses, False)
            if landed or not lost:
                sync(**options)
            if lost:
                raise error

        reader._assigned.sync_with_group = unreliable  # type: ignore[method-assign]
        while len(got) < 5 * KEYS:
            try:
                batch = reader.read(60)
            except (AppendUncertain, StoreBusy):
                with reader._lock:  # as a heartbeat does meanwhile
                    sync()
                continue
            assert batch is not None
            got += batch.column("payload").to_pylist()
    assert complete(got, 5)


def test_at_most_once_a_checkpoint_within_a_batch_loses_none_of_its_events(store: Store) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r", delivery="at_most_once") as reader:
        got = [next(iter(reader)).body]
        asking = started(group.checkpoint, "c")
        until(lambda: reader._membership.awaited_checkpoint is not None)
        while len(got) < 5 * KEYS and (batch := reader.read(1)) is not None:
            got += batch.column("payload").to_pylist()
        until_ended(asking)
    assert complete(got, 5)


def test_a_reader_goes_on_after_heartbeats_of_unknown_outcome(store: Store) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r", batch_rows=3) as reader:
        first = reader.read(60)
        lost = threading.Event()
        refresh = reader._assigned.refresh_and_sync

        def lose() -> None:
            lost.set()
            raise AppendUncertain("the connection was lost")

        reader._assigned.refresh_and_sync = lose  # type: ignore[method-assign]
        assert first is not None and lost.wait(PATIENCE_S)
        reader._assigned.refresh_and_sync = refresh  # type: ignore[method-assign]
        got = first.column("payload").to_pylist()
        while len(got) < 5 * KEYS:
            batch = reader.read(60)
            assert batch is not None
            got += batch.column("payload").to_pylist()
    assert complete(got, 5)


@pytest.mark.parametrize("error", [StoreBusy("locked"), AppendUncertain("lost")])
def test_a_reader_that_can_not_leave_is_closed_and_its_lease_expires(store: Store, error: Exception) -> None:
    write(store, 0, 1)
    group = store.groups.open("s/g", streams=["s/a"])
    reader = group.reader("r")
    assert reader.read(60) is not None
    with failing(store, error):
        reader.close()
    assert group.readers == ["r"]


def test_exactly_once_accepts_only_with_the_output(anywhere: Store) -> None:
    store = anywhere
    store.streams.create("s/out")
    write(store, 0, 6)
    group = store.groups.open("s/g", streams=["s/a"])

    def copy(reader: ab.GroupReader, batches: int, *, commit: bool) -> None:
        for _ in range(batches):
            batch = reader.read(timeout_s=60)
            assert batch is not None
            if commit:
                reader.commit({"s/out": pa.table({"key": batch.column("key"), "payload": batch.column("payload")})})

    reader = group.reader("r", delivery="exactly_once", batch_rows=5)
    copy(reader, 3, commit=True)
    copy(reader, 2, commit=False)
    reader.close()  # in order; still nothing is accepted without its output
    assert group.unread().events == 6 * KEYS - len(bodies_of(store, "s/out"))
    with group.reader("r", delivery="exactly_once", batch_rows=5) as reader:
        while group.unread().events:
            copy(reader, 1, commit=True)
    assert complete(bodies_of(store, "s/out"), 6) and sound(store)


@pytest.mark.parametrize("landed", [True, False])
def test_a_commit_whose_answer_was_lost_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    store.streams.create("s/out")
    write(store, 0, 2)
    group = store.groups.open("s/g", streams=["s/a"])
    real = store.catalog.writing
    lost: list[bool] = []

    @contextmanager
    def writing(on: Any = None) -> Iterator[Any]:
        with real(on) as txn:
            yield txn
            if not landed and not lost:
                lost.append(True)
                raise ab.errors.AppendUncertain("the answer was lost")
        if not lost:
            lost.append(True)
            raise ab.errors.AppendUncertain("the answer was lost")

    with group.reader("r", delivery="exactly_once") as reader:
        batch = reader.read()
        assert batch is not None
        monkeypatch.setattr(store.catalog, "writing", writing)
        reader.commit({"s/out": pa.table({"payload": batch.column("payload")})})
        assert lost and len(bodies_of(store, "s/out")) == batch.num_rows
        assert group.unread().events == 2 * KEYS - batch.num_rows
    with store.catalog.reading() as reading:
        assert reading.states(PUBLISHED) == []  # nothing is left behind
    assert sound(store)


def test_a_failed_output_leaves_the_position_unchanged(store: Store) -> None:
    write(store, 0, 2)
    store.streams.create("s/out", schema=pa.schema([("n", pa.int64())]))
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r", delivery="exactly_once") as reader:
        assert reader.read() is not None
        with pytest.raises(SchemaMismatch):
            reader.commit({"s/out": pa.table({"other": ["x"]})})
        with pytest.raises(StreamNotFound):
            reader.commit({"s/none": pa.table({"n": [1]})})
        assert group.unread().events == 2 * KEYS
        reader.commit({"s/out": pa.table({"n": [1]})})
    assert group.unread().events < 2 * KEYS and len(bodies_of(store, "s/out")) == 1


def test_commits_succeed_while_other_readers_change_the_state(store: Store) -> None:
    store.streams.create("s/out")
    write(store, 0, 30)
    group = store.groups.open("s/g", streams=["s/a"], end=ab.TAIL)

    def work(name: str) -> None:
        with group.reader(name, delivery="exactly_once", batch_rows=3) as reader:
            for batch in reader.batches():
                reader.commit({"s/out": pa.table({"key": batch.column("key"), "payload": batch.column("payload")})})

    until_ended(*[started(work, f"r{i}") for i in range(3)])
    assert complete(bodies_of(store, "s/out"), 30)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The application's own."""
    if request.param == "sqlite":
        with closing(sqlite3.connect(tmp_path / "own.db")) as own:
            own.execute("create table output (number integer primary key autoincrement, body blob)")
            yield own
        return
    with psycopg.connect(shared_url()) as own:
        own.execute("create temporary table output (number bigserial, body bytea)")
        yield own


def put_out(database: Any, batch: pa.RecordBatch) -> None:
    mark = "?" if isinstance(database, sqlite3.Connection) else "%s"
    for body in batch.column("payload").to_pylist():
        database.execute(f"insert into output (body) values ({mark})", (body,))


@pytest.mark.parametrize("first", [True, False])
def test_positions_in_the_applications_own_database(store: Store, database: Any, first: bool) -> None:
    write(store, 0, 6)
    group = store.groups.open("s/g", streams=["s/a"])

    def consume(reader: ab.GroupReader, positions: ab.SqlPositions, *, tell: bool) -> bool:
        batch = reader.read(timeout_s=0.3)
        if batch is None:
            return False
        put_out(database, batch)
        positions.store(reader)
        database.commit()
        if tell:
            reader.commit()
        return True

    positions = ab.SqlPositions(database)
    former = group.reader("r", delivery="exactly_once", positions=positions, batch_rows=5)
    if not first:  # else it knows of no position where the other stores one
        assert consume(former, positions, tell=True) and consume(former, positions, tell=False)
    late = former.read()  # it is taken over now, and does not know
    assert late is not None
    other = ab.SqlPositions(database)
    with group.reader("r", delivery="exactly_once", positions=other, batch_rows=5) as reader:
        while consume(reader, other, tell=True):
            pass
        put_out(database, late)
        with pytest.raises(ReaderNotInGroup):
            positions.store(former)
        database.rollback()
    former.abandon()
    rows = database.execute("select body from output order by number").fetchall()
    assert complete([row[0] for row in rows], 6)
    assert group.unread().events == 0


@pytest.mark.parametrize("read_on", [True, False])
def test_a_rolled_back_position_does_not_count_as_stored(store: Store, database: Any, read_on: bool) -> None:
    write(store, 0, 6)
    group = store.groups.open("s/g", streams=["s/a"])
    positions = ab.SqlPositions(database)
    reader = group.reader("r", delivery="exactly_once", positions=positions, batch_rows=5)
    for kept in (True, False):  # the first batch is committed, the second one's transaction is rolled back
        batch = reader.read(60)
        assert batch is not None
        put_out(database, batch)
        positions.store(reader)
        positions.store(reader)  # harmless within one transaction
        database.commit() if kept else database.rollback()
    if read_on:
        batch = reader.read(60)
        assert batch is not None
    put_out(database, batch)
    with pytest.raises(ReaderNotInGroup):
        positions.store(reader)
    database.rollback()
    reader.abandon()
    again = ab.SqlPositions(database)
    with group.reader("r", delivery="exactly_once", positions=again) as reader:
        while group.unread().events:
            if (batch := reader.read(0.05)) is not None:
                put_out(database, batch)
                again.store(reader)
                database.commit()
                reader.commit()
    rows = database.execute("select body from output order by number").fetchall()
    assert complete([row[0] for row in rows], 6)


@pytest.fixture
def own_schema() -> Iterator[str]:
    """The address of an empty PostgreSQL schema."""
    name = f"positions_{os.getpid()}_{uuid4().hex[:8]}"
    with psycopg.connect(shared_url(), autocommit=True) as database:
        database.execute(f"create schema {name}".encode())
        yield psycopg.conninfo.make_conninfo(shared_url(), options=f"-csearch_path={name}")
        database.execute(f"drop schema {name} cascade".encode())


def test_the_first_processes_may_create_the_table_of_positions_together(own_schema: str) -> None:
    together = threading.Barrier(4)

    def create() -> None:
        with psycopg.connect(own_schema) as database:
            together.wait(60)
            assert ab.SqlPositions(database).load("s/g", StreamSegment(StreamId(1), SegmentId(0, 0))) is None

    until_ended(*[started(create) for _ in range(4)])


def test_a_role_that_may_not_create_tables_uses_the_table_of_positions(own_schema: str) -> None:
    role = f"positions_{uuid4().hex[:8]}"
    with psycopg.connect(own_schema) as database:
        schema = database.execute("select current_schema()").fetchone()
        assert schema is not None
        for statement in (f"create role {role}", f"grant usage on schema {schema[0]} to {role}"):
            database.execute(statement.encode())
        database.commit()
        database.execute(f"set role {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ab.SqlPositions(database)
        database.rollback()
        database.execute("reset role")
        ab.SqlPositions(database)
        database.execute(f"grant select, insert, update on anabranch_positions to {role}".encode())
        database.execute(f"set role {role}".encode())
        assert ab.SqlPositions(database).load("s/g", StreamSegment(StreamId(1), SegmentId(0, 0))) is None
        database.execute("reset role")
        database.execute(f"drop owned by {role}".encode())
        database.execute(f"drop role {role}".encode())
