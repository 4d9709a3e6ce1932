"""Transactions on PostgreSQL that say what they are on: which run side by side, which take turns, and what none may do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

import anabranch as ab
from anabranch.catalog.port import Subject, Writing
from anabranch.catalog.postgres.adapter import PostgresCatalog
from anabranch.catalog.state.transaction import PUBLISHED, PublishedSeries
from anabranch.model.ids import LogId, StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import Scope, Span
from anabranch.runtime.ports import Runtime
from tests.contracts.catalog.samples import NOW, SEGMENT, info, new_stream
from tests.waiting import PATIENCE_S, until_ended

A, B = StreamId(1), StreamId(2)
NAME_A, NAME_B = StreamName("iot", "a"), StreamName("iot", "b")


@pytest.fixture
def catalog(url: str) -> Iterator[PostgresCatalog]:
    opened = PostgresCatalog(url, Runtime())
    new_stream(opened, A, str(NAME_A))
    new_stream(opened, B, str(NAME_B))
    yield opened
    opened.close()


class Side:
    """Work in another thread. `go` lets it begin; `ended` says that it has ended."""

    def __init__(self) -> None:
        self.go, self.ended = threading.Event(), threading.Event()

    def ends(self) -> bool:
        """Let it begin, and wait for its end."""
        self.go.set()
        return self.ended.wait(PATIENCE_S)

    def waits(self, url: str) -> bool:
        """Let it begin; True as soon as it waits for an advisory lock, False where it ended without."""
        self.go.set()
        with psycopg.connect(url.partition("?")[0], autocommit=True) as database:
            while not self.ended.wait(0.002):
                asked = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
                row = database.execute(asked).fetchone()
                if row and row[0]:
                    return True
        return False


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[Side]:
    """Work for another thread. Waits for its end; its failure is raised."""
    side = Side()
    failures: list[BaseException] = []

    def run() -> None:
        side.go.wait()
        try:
            work()
        except BaseException as exc:
            failures.append(exc)
        side.ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield side
    finally:
        side.go.set()
        until_ended(thread)
    if failures:
        raise failures[0]


def tag(catalog: PostgresCatalog, on: Subject | None, name: StreamName) -> None:
    with catalog.writing(on) as txn:
        found = txn.stream(name)
        assert found is not None
        assert txn.view(found.id) is not None
        txn.update_stream(found)


@pytest.mark.parametrize("first", [A, NAME_A])
@pytest.mark.parametrize("second", [B, NAME_B])
def test_transactions_on_two_streams_run_side_by_side(
    catalog: PostgresCatalog, first: Subject, second: Subject
) -> None:
    with beside(lambda: tag(catalog, second, NAME_B)) as side, catalog.writing(first) as txn:
        txn.view(A)
        assert side.ends()


@pytest.mark.parametrize(
    ("first", "second"), [(A, A), (A, NAME_A), (NAME_A, A), (NAME_A, NAME_A), (None, NAME_A), (A, None), ("x", None)]
)
def test_transactions_that_may_touch_the_same_take_turns(
    catalog: PostgresCatalog, url: str, first: Subject | None, second: Subject | None
) -> None:
    with beside(lambda: tag(catalog, second, NAME_A)) as side, catalog.writing(first):
        assert side.waits(url)


@pytest.mark.parametrize("by_alias_first", [True, False])
def test_a_transaction_on_an_alias_takes_turns_with_those_on_its_stream(
    catalog: PostgresCatalog, url: str, by_alias_first: bool
) -> None:
    alias = StreamName("iot", "alias")
    with catalog.writing() as txn:
        txn.put_alias(alias, A)
    first, second = (alias, NAME_A) if by_alias_first else (NAME_A, alias)
    with beside(lambda: tag(catalog, second, second)) as side, catalog.writing(first) as txn:
        assert side.waits(url)
        assert txn.stream(first) is not None


def test_of_two_that_make_one_stream_the_second_finds_it_made(catalog: PostgresCatalog, url: str) -> None:
    name = StreamName("iot", "new")
    found: list[object] = []

    def look() -> None:
        with catalog.writing(name) as txn:
            found.append(txn.stream(name))

    with beside(look) as side, catalog.writing(name) as txn:
        assert side.waits(url)
        txn.insert_stream(info(9, str(name)))
        txn.new_log(StreamId(9), appended_at=NOW)
    assert [getattr(each, "id", None) for each in found] == [9]


def test_changes_are_numbered_in_commit_order_though_transactions_run_side_by_side(catalog: PostgresCatalog) -> None:
    with catalog.writing(A) as txn:
        txn.add_change(A, "first said", {}, now=NOW)

        def other() -> None:
            with catalog.writing(B) as inner:
                inner.add_change(B, "first done", {}, now=NOW)

        with beside(other) as side:
            assert side.ends()
        with catalog.reading() as reading:
            seen = [change.kind for change in reading.changes(0, 10)]
        assert seen == ["first done"]
    with catalog.reading() as reading:
        changes = reading.changes(0, 10)
    assert [change.kind for change in changes] == ["first done", "first said"]
    assert changes[0].sequence < changes[1].sequence


def test_no_change_is_numbered_below_one_that_may_have_been_read(catalog: PostgresCatalog, url: str) -> None:
    def other() -> None:
        with catalog.writing(B) as inner:
            inner.add_change(B, "two", {}, now=NOW)

    with beside(other) as side, catalog.writing(A) as txn:
        txn.add_change(A, "one", {}, now=NOW)
        assert [change.kind for change in txn.changes(0, 10)] == ["one"]  # which has a number now
        assert side.waits(url)
    with catalog.reading() as reading:
        assert [change.kind for change in reading.changes(0, 10)] == ["one", "two"]


def _rename(txn: Writing) -> None:
    found = txn.stream(A)
    assert found is not None
    txn.update_stream(info(A, "iot/c"))


@pytest.mark.parametrize(
    "overstep",
    [
        lambda txn: txn.view(B),
        lambda txn: txn.stream(NAME_B),
        lambda txn: txn.logs([LogId(2)]),
        lambda txn: txn.streams("iot"),
        lambda txn: txn.put_scope(Scope("iot", {}, NOW)),
        lambda txn: txn.put_span(B, Span(SEGMENT, 9, LogId(1), 0, 0)),
        lambda txn: txn.spans_of_log(LogId(1)),
        lambda txn: txn.leases(),
        lambda txn: txn.set_horizon(NOW),
        lambda txn: txn.drop_changes_before(NOW, 1),
        lambda txn: txn.new_log(B, appended_at=NOW),
        lambda txn: txn.insert_stream(info(7, "iot/z")),
        _rename,
    ],
)
def test_a_transaction_may_not_step_beside_what_it_is_on(
    catalog: PostgresCatalog, overstep: Callable[[Writing], object]
) -> None:
    with pytest.raises(AssertionError, match="a transaction on"), catalog.writing(A) as txn:
        overstep(txn)


def test_a_value_of_state_is_locked_whatever_its_transactions_are_on(catalog: PostgresCatalog, url: str) -> None:
    def count(on: Subject) -> None:
        with catalog.writing(on) as txn:
            found = txn.state(PUBLISHED, "n")
            txn.put_state(PUBLISHED, "n", PublishedSeries(found.number + 1 if found else 1))

    with beside(lambda: count(B)) as side, catalog.writing(A) as txn:
        assert txn.state(PUBLISHED, "n") is None
        assert side.waits(url)
        txn.put_state(PUBLISHED, "n", PublishedSeries(1))
    with catalog.reading() as reading:
        assert reading.state(PUBLISHED, "n") == PublishedSeries(2)


def test_the_changes_of_many_streams_made_at_once_are_all_there(url: str, tmp_path: Path) -> None:
    threads, rounds = 6, 5
    with ab.connect(url, blobs=tmp_path, create=True) as store:
        store.scopes.create("s")
        failures: list[BaseException] = []

        def work(me: int) -> None:
            try:
                name = f"s/n{me}"
                store.streams.create(name, scaling=2)
                for number in range(rounds):
                    store.streams.scale(name, 1 + number % 3, request=f"{me}/{number}")
                    with store.writer(name, writer_id="w") as writer:
                        writer.write(b"x", key="k").result(120)
                    store.streams.truncate(name, store.cuts.head(name))
                store.streams.seal(name)
                if me % 2:
                    store.streams.delete(name)
            except BaseException as exc:
                failures.append(exc)

        running = [threading.Thread(target=work, args=(me,)) for me in range(threads)]
        for each in running:
            each.start()
        until_ended(*running)
        assert not failures, failures[0]
        assert [str(each.name) for each in store.streams.list("s")] == ["s/n0", "s/n2", "s/n4"]
        with store.reader("s/n0") as reader:
            assert len(list(reader)) == rounds
        with store.catalog.reading() as reading:
            changes = reading.changes(0, 1000)
        for me in range(threads):
            kinds = [c.kind for c in changes if c.kind == "created" and c.detail["name"] == f"s/n{me}"]
            assert kinds == ["created"]
        assert list(store.check()) == []


def test_a_group_commits_its_output_beside_changes_of_other_streams(url: str, tmp_path: Path) -> None:
    with ab.connect(url, blobs=tmp_path / "blobs", create=True) as store:
        store.scopes.create("s")
        for name in ("s/in", "s/out", "s/other"):
            store.streams.create(name)
        with store.writer("s/in") as writer:
            for n in range(20):
                writer.write(b"%d" % n, key="k")
        other = store.streams.get("s/other").id
        group = store.groups.open("s/group", streams=["s/in"])
        with group.reader("r", delivery="exactly_once", batch_rows=5) as reader:

            def commit() -> None:
                batch = reader.read(PATIENCE_S)
                assert batch is not None
                reader.commit({"s/out": batch.select(["key", "payload"])})

            with store.catalog.writing(other) as txn, beside(commit) as side:
                txn.view(other)
                assert side.ends()
            assert len(list(store.reader("s/out"))) == 5
            while group.unread().events:
                commit()
        assert [event.body for event in store.reader("s/out")] == [b"%d" % n for n in range(20)]


def test_groups_that_write_to_one_stream_and_to_each_others_sources_do_not_wait_in_a_circle(
    url: str, tmp_path: Path
) -> None:
    count = 12
    with ab.connect(url, blobs=tmp_path / "blobs", create=True) as store:
        store.scopes.create("s")
        for name in ("s/a", "s/b"):
            store.streams.create(name, scaling=2)
            with store.writer(name) as writer:
                for n in range(count):
                    writer.write(b"%d" % n, key=str(n))

        def carry(source: str, target: str) -> None:
            """Half of what the source holds, to a stream that another group reads, in many commits."""
            group = store.groups.open(f"s/{source[2:]}-group", streams=[source])
            with group.reader("r", delivery="exactly_once", batch_rows=1) as reader:
                for _ in range(count):
                    batch = reader.read(PATIENCE_S)
                    assert batch is not None
                    reader.commit({target: batch.select(["key", "payload"])})

        with beside(lambda: carry("s/a", "s/b")) as one, beside(lambda: carry("s/b", "s/a")) as other:
            one.go.set()
            assert other.ends()
            assert one.ends()
        for name in ("s/a", "s/b"):
            with store.reader(name) as reader:
                assert len(list(reader)) == 2 * count
        assert list(store.check()) == []
