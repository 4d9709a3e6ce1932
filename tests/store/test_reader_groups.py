"""Reader groups in one process: sharing, handing over, delivery, checkpoints, and going back."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    AlreadyExists,
    AppendUncertain,
    Closed,
    GroupNotFound,
    InvalidArgument,
    InvalidCut,
    NotFound,
    ReaderNotInGroup,
    SchemaMismatch,
    StreamNotFound,
    Truncated,
)
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, LostAnswers, bodies_of, sound, store_at
from tests.waiting import until, until_ended

KEYS = 8


@pytest.fixture(params=ANYWHERE)
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with store_at(request.param, tmp_path) as store:
        prepare(store)
        yield store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at("memory", tmp_path) as store:
        prepare(store)
        yield store


def prepare(store: Store) -> None:
    store.streams.create("s/a", scaling=4)


def write(store: Store, start: int, count: int, stream: str = "s/a") -> None:
    """Events `key:sequence`, so many of each key."""
    with store.writer(stream) as writer:
        for sequence in range(start, start + count):
            for key in range(KEYS):
                writer.write(f"{key}:{sequence}".encode(), key=f"k{key}")


def started(work: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def sequences(bodies: list[bytes]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for body in bodies:
        key, sequence = body.split(b":")
        found[int(key)].append(int(sequence))
    return dict(found)


def complete(bodies: list[bytes], count: int) -> bool:
    """True if every key's events are there, once and in order."""
    return sequences(bodies) == {key: list(range(count)) for key in range(KEYS)}


def take(reader: ab.GroupReader, count: int) -> list[bytes]:
    events = iter(reader)
    return [next(events).body for _ in range(count)]


# sharing


def test_readers_share_a_stream_while_it_is_split_and_merged(anywhere: Store) -> None:
    store = anywhere
    write(store, 0, 10)
    group = store.reader_group("s/g", streams=["s/a"])
    seen: list[bytes] = []  # appended to by all, in the order in which they are done

    def work(name: str) -> None:
        with group.reader(name) as reader:
            for event in reader:
                seen.append(event.body)  # noqa: PERF401 - event by event, beside the others

    threads = [started(work, f"r{i}") for i in range(3)]
    for step, segments in enumerate((2, 6, 1, 3)):
        write(store, 10 * (step + 1), 10)
        store.streams.scale("s/a", segments)
    store.streams.seal("s/a")
    until_ended(*threads)
    assert complete(seen, 50)
    assert group.unread().events == 0 and group.readers == [] and sound(store)


def test_a_group_is_made_once_and_found_again(store: Store) -> None:
    with pytest.raises(GroupNotFound, match="no reader group 's/g'"):
        store.reader_group("s/g")
    with pytest.raises(StreamNotFound):
        store.reader_group("s/g", streams=["s/none"])
    store.streams.create("s/b")
    made = store.reader_group("s/g", streams=["s/a"])
    assert store.reader_group("s/g").streams == made.streams == ["s/a"]
    assert store.reader_group("s/g", streams="s/a").streams == ["s/a"]
    with pytest.raises(InvalidArgument, match="reads other streams"):
        store.reader_group("s/g", streams=["s/b"])
    for wrong in ([], ["s/a", "s/a"]):
        with pytest.raises(InvalidArgument, match="each stream once"):
            store.reader_group("s/h", streams=wrong)
    assert store.reader_groups() == store.reader_groups("s") == ["s/g"]
    assert [str(info.name) for info in store.streams.list("s")] == ["s/a", "s/b"]


def test_a_group_over_several_streams(store: Store) -> None:
    store.streams.create("s/t", schema=pa.schema([("device", pa.string()), ("n", pa.int64())]), key="device")
    with store.writer("s/t") as writer:
        writer.write_batch(pa.table({"device": ["x", "y"], "n": [1, 2]}))
    write(store, 0, 2)
    group = store.reader_group("s/g", streams=["s/a", "s/t"], end=ab.TAIL)
    with group.reader("r") as reader:
        batches = list(reader.batches())
    rows: dict[str, int] = defaultdict(int)
    for batch in batches:
        rows[batch.schema.metadata[b"stream"].decode()] += batch.num_rows
        assert batch.schema.names[-3:] == ["_segment", "_offset", "_appended"]
    assert rows == {"s/a": 2 * KEYS, "s/t": 2}
    assert group.cut().keys() == {"s/a", "s/t"} and group.unread().events == 0


def test_a_group_begins_and_ends_where_it_is_told(store: Store) -> None:
    write(store, 0, 2)
    middle = store.streams.tail("s/a")
    write(store, 2, 3)
    late = store.reader_group("s/late", streams=["s/a"], start=middle, end={"s/a": ab.TAIL})
    write(store, 5, 1)
    early = store.reader_group("s/early", streams=["s/a"], end=middle)
    assert (late.unread().events, early.unread().events) == (3 * KEYS, 2 * KEYS)
    with late.reader("r") as reader:
        assert sorted(sequences([event.body for event in reader])[0]) == [2, 3, 4]
    with early.reader("r") as reader:
        assert complete([event.body for event in reader], 2)
    with pytest.raises(InvalidArgument, match="a place for each of s/a"):
        store.reader_group("s/x", streams=["s/a"], start={"s/b": ab.HEAD})


def test_unread_counts_what_successors_hold_and_what_it_weighs(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    assert (group.unread().events, group.unread().bytes) == (0, 0)
    write(store, 0, 3)
    store.streams.scale("s/a", 1)
    write(store, 3, 1)
    unread = group.unread()
    assert unread.events == 4 * KEYS == sum(events for events, _ in unread.segments.values())
    whole = sum(log.size for log in store.streams.view("s/a").logs.values())
    assert unread.bytes == whole == sum(size for _, size in unread.segments.values())


# who reads what


def test_a_newcomer_gets_its_share_and_gives_it_back_when_it_leaves(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r1") as first:
        assert len(first.segments) == 4 and group.distribution().unassigned == ()
        with group.reader("r2") as second:
            until(lambda: len(first.segments) == len(second.segments) == 2)
            assert {len(each) for each in group.distribution().readers.values()} == {2}
            assert not set(first.segments) & set(second.segments)
        until(lambda: len(first.segments) == 4)
    assert group.distribution().readers == {} and len(group.distribution().unassigned) == 4


def test_more_readers_than_segments_leave_some_idle(store: Store) -> None:
    store.streams.create("s/one")
    group = store.reader_group("s/g", streams=["s/one"])
    with group.reader("r1") as first, group.reader("r2") as second:
        write(store, 0, 3, "s/one")
        assert len(take(first, 3 * KEYS)) == 3 * KEYS
        assert second.read(timeout_s=0.2) is None and second.segments == []


def test_a_segment_is_not_taken_from_an_event_that_is_being_worked_on(store: Store) -> None:
    write(store, 0, 4)
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r1") as first:
        events = iter(first)
        in_hand = next(events)
        with group.reader("r2") as second:
            until(lambda: len(second.segments) == 2)
            assert in_hand.segment in {each.segment for each in first.segments}
            rest = [in_hand.body]
            both = [rest, list[bytes]()]
            until_read(both, [events, iter(second)], 4 * KEYS)
    assert complete([*both[0], *both[1]], 4)


def test_what_is_not_committed_is_not_given_up(store: Store) -> None:
    write(store, 0, 4)
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r1", delivery="exactly_once") as first:
        while first.read() is not None:
            pass
        begun = {each for each, offset in first.position if offset}
        assert len(begun) > 1
        with group.reader("r2"), group.reader("r3"), group.reader("r4"):
            with first._busy:
                first._standing.meet()
            assert begun <= set(first.segments)
            first.commit()
            until(lambda: len(first.segments) == 1)


def test_a_batch_that_is_handed_out_event_by_event_stays_to_its_end(store: Store) -> None:
    write(store, 0, 4)
    group = store.reader_group("s/g", streams=["s/a"])
    unread = group.unread().segments
    furthest = max(unread, key=lambda segment: unread[segment])
    with group.reader("r1", delivery="exactly_once") as first:
        events = iter(first)
        while next(events).segment != furthest.segment:
            pass
        first.commit()  # nothing is uncommitted, but the batch has more events
        with group.reader("r2"), group.reader("r3"), group.reader("r4"):
            until(lambda: len(first.segments) == 1)
            assert first.segments == [furthest]
            assert next(events).segment == furthest.segment


def until_read(into: list[list[bytes]], events: list[Any], count: int) -> None:
    """Read on with several readers, each in a thread, until so many events are there."""

    def read(i: int) -> None:
        for event in events[i]:
            into[i].append(event.body)
            if sum(map(len, into)) >= count:
                return

    for i in range(len(events)):
        started(read, i)
    until(lambda: sum(map(len, into)) >= count)


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("read_on", [True, False])
def test_output_of_which_nobody_knows_whether_it_landed_is_there_once(
    store: Store, landed: bool, read_on: bool
) -> None:
    store.streams.create("s/out")
    write(store, 0, 3)
    group = store.reader_group("s/g", streams=["s/a"])
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
                with reader._busy:
                    reader._standing.meet()
                reader.commit(output)
                shared = reader._share._shared
                assert shared.revision <= shared.stream.latest()
        reader.commit()
        assert losses > 1
    assert complete(bodies_of(store, "s/out"), 3) and len(bodies_of(store, "s/out")) == 3 * KEYS
    assert group.unread().events == 0
    with group.reader("r", delivery="exactly_once") as reader:
        assert reader.read() is None


def test_a_reader_opened_again_takes_over_and_the_former_one_is_refused(store: Store) -> None:
    write(store, 0, 5)
    group = store.reader_group("s/g", streams=["s/a"])
    former = group.reader("r", delivery="exactly_once")
    lost = take(former, 3)
    with group.reader("r") as reader:
        assert len(reader.segments) == 4
        with pytest.raises(ReaderNotInGroup):
            former.commit()
        with pytest.raises(ReaderNotInGroup):
            list(former)
        got = take(reader, 5 * KEYS)
    assert complete(got, 5) and set(lost) <= set(got)
    former.close()
    former.close()
    with pytest.raises(Closed):
        former.read()


def test_a_reader_said_to_be_offline_is_replaced_at_once_and_saying_so_twice_is_harmless(store: Store) -> None:
    write(store, 0, 5)
    group = store.reader_group("s/g", streams=["s/a"])
    dead = group.reader("dead", delivery="exactly_once")
    first = take(dead, 7)
    position = dead.position
    group.reader_offline("dead", str(position))
    group.reader_offline("dead", position)
    group.reader_offline("never there")
    with pytest.raises(InvalidCut):
        group.reader_offline("dead", "here")
    with group.reader("alive") as reader:
        rest = take(reader, 5 * KEYS - 7)
    assert complete([*first, *rest], 5)
    with pytest.raises(ReaderNotInGroup):
        dead.commit()


def test_a_silent_reader_is_presumed_dead_and_learns_of_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    write(store, 0, 5)
    group = store.reader_group("s/g", streams=["s/a"], lease_s=0.4)
    with monkeypatch.context() as patched:
        patched.setattr(ab.GroupReader, "_live", lambda self: None)  # as if its process were stopped
        silent = group.reader("silent")
    given = take(silent, 5)
    with group.reader("r") as reader:
        assert len(take(reader, 5 * KEYS)) == 5 * KEYS  # nothing that the silent one was given had been accepted
        assert group.readers == ["r"] and len(given) == 5
        with pytest.raises(ReaderNotInGroup):
            silent.commit()
    silent.close()
    assert group.unread().events == 0


# delivery


def test_what_a_reader_was_given_before_an_error_comes_again_but_for_what_was_done_with(store: Store) -> None:
    write(store, 0, 5)
    group = store.reader_group("s/g", streams=["s/a"])
    with pytest.raises(ZeroDivisionError), group.reader("r") as reader:  # noqa: PT012
        for count, event in enumerate(reader, 1):
            last = event.body
            if count == 10:
                raise ZeroDivisionError
    with group.reader("r") as reader:
        again = take(reader, 5 * KEYS - 9)
    assert last in again and group.unread().events == 0


def test_what_a_reader_has_done_when_it_is_left_in_order_does_not_come_again(store: Store) -> None:
    write(store, 0, 5)
    group = store.reader_group("s/g", streams=["s/a"])
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
    group = store.reader_group("s/g", streams=["s/a"], end=ab.TAIL)
    got: list[bytes] = []
    with group.reader("r", batch_rows=4) as reader:
        while True:
            got += [event.body for _, event in zip(range(3), reader, strict=False)]
            batch = reader.read(timeout_s=0.1)
            if batch is None:
                break
            got += batch.column("payload").to_pylist()
    assert len(got) == len(set(got)) == 9 * KEYS


def test_at_most_once_accepts_before_it_hands_out(store: Store) -> None:
    write(store, 0, 5)
    group = store.reader_group("s/g", streams=["s/a"])
    reader = group.reader("r", delivery="at_most_once")
    batch = reader.read()
    assert batch is not None and group.unread().events == 5 * KEYS - batch.num_rows
    reader.abandon()
    assert group.unread().events == 5 * KEYS - batch.num_rows


def test_exactly_once_accepts_with_the_output_alone(anywhere: Store) -> None:
    store = anywhere
    store.streams.create("s/out")
    write(store, 0, 6)
    group = store.reader_group("s/g", streams=["s/a"])

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
    group = store.reader_group("s/g", streams=["s/a"])
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
        assert reading.pieces("published") == []  # nothing is left behind
    assert sound(store)


def test_an_output_that_can_not_be_written_leaves_the_position_where_it_was(store: Store) -> None:
    write(store, 0, 2)
    store.streams.create("s/out", schema=pa.schema([("n", pa.int64())]))
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r", delivery="exactly_once") as reader:
        assert reader.read() is not None
        with pytest.raises(SchemaMismatch):
            reader.commit({"s/out": pa.table({"other": ["x"]})})
        with pytest.raises(StreamNotFound):
            reader.commit({"s/none": pa.table({"n": [1]})})
        assert group.unread().events == 2 * KEYS
        reader.commit({"s/out": pa.table({"n": [1]})})
    assert group.unread().events < 2 * KEYS and len(bodies_of(store, "s/out")) == 1


def test_a_commit_gets_through_while_others_change_the_state(store: Store) -> None:
    store.streams.create("s/out")
    write(store, 0, 30)
    group = store.reader_group("s/g", streams=["s/a"], end=ab.TAIL)

    def work(name: str) -> None:
        with group.reader(name, delivery="exactly_once", batch_rows=3) as reader:
            for batch in reader.batches():
                reader.commit({"s/out": pa.table({"key": batch.column("key"), "payload": batch.column("payload")})})

    until_ended(*[started(work, f"r{i}") for i in range(3)])
    assert complete(bodies_of(store, "s/out"), 30)


def test_positions_in_the_applications_own_database(store: Store, tmp_path: Path) -> None:
    write(store, 0, 6)
    group = store.reader_group("s/g", streams=["s/a"])
    database = sqlite3.connect(tmp_path / "own.db")
    database.execute("create table output (body blob)")

    def consume(reader: ab.GroupReader, positions: ab.SqlPositions, *, tell: bool) -> bool:
        batch = reader.read(timeout_s=0.3)
        if batch is None:
            return False
        database.executemany("insert into output values (?)", [(b,) for b in batch.column("payload").to_pylist()])
        positions.store(reader)
        database.commit()
        if tell:
            reader.commit()
        return True

    positions = ab.SqlPositions(database)
    former = group.reader("r", delivery="exactly_once", positions=positions, batch_rows=5)
    assert consume(former, positions, tell=True) and consume(former, positions, tell=False)
    late = former.read()  # it is taken over now, and does not know
    assert late is not None
    other = ab.SqlPositions(database)
    with group.reader("r", delivery="exactly_once", positions=other, batch_rows=5) as reader:
        while consume(reader, other, tell=True):
            pass
        database.executemany("insert into output values (?)", [(b,) for b in late.column("payload").to_pylist()])
        with pytest.raises(ReaderNotInGroup):
            positions.store(former)
        database.rollback()
    former.abandon()
    assert complete([row[0] for row in database.execute("select body from output order by rowid")], 6)
    assert group.unread().events == 0


def test_what_can_not_be_meant_is_refused(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    with pytest.raises(InvalidArgument, match="delivery is"):
        group.reader("r", delivery="twice")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="exactly_once"):
        group.reader("r", positions=ab.SqlPositions(sqlite3.connect(":memory:")))
    with pytest.raises(InvalidArgument, match="name is text"):
        group.reader("")
    with pytest.raises(InvalidArgument, match="at least one row"):
        group.reader("r", batch_rows=0)
    for wrong in ({"lease_s": 0.0}, {"checkpoint_s": 0.0}):
        with pytest.raises(InvalidArgument):
            store.reader_group("s/h", streams=["s/a"], **wrong)  # type: ignore[arg-type]
    assert group.readers == []


# checkpoints, and going back


def test_a_checkpoint_is_a_cut_of_what_every_reader_was_given(store: Store) -> None:
    write(store, 0, 6)
    group = store.reader_group("s/g", streams=["s/a"])
    came: list[str] = []
    with group.reader("r1") as first, group.reader("r2") as second:
        until(lambda: len(first.segments) == len(second.segments) == 2)
        for reader in (first, second):
            reader.on_checkpoint(lambda name, reader=reader: came.append(f"{reader.name} {name}"))  # type: ignore[misc]
        given = take(first, 5)
        with pytest.raises(TimeoutError, match="waits for r1, r2"):
            group.checkpoint("c", timeout_s=0.0)
        until(lambda: first._share.awaited_checkpoint == second._share.awaited_checkpoint == "c")
        given += take(second, 3)  # it came to the checkpoint before these
        given_after = given[5:]
        while first.read() is not None:  # this one comes to it behind the five, and goes on
            pass
        until(lambda: group.checkpoints)
    assert sorted(came) == ["r1 c", "r2 c"] and [each.name for each in group.checkpoints] == ["c"]
    with pytest.raises(AlreadyExists):
        group.checkpoint("c")
    group.reset("c")
    with group.reader("r") as reader:
        again = take(reader, 6 * KEYS - 5)
    assert set(again).isdisjoint(given[:5]) and set(given_after) <= set(again)
    assert group.unread().events == 0


def test_a_reader_that_leaves_is_not_waited_for(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    reader = group.reader("r")
    done: list[ab.Checkpoint] = []
    asking = started(lambda: done.append(group.checkpoint("c")))
    until(lambda: store.reader_group("s/g")._state().checkpoint is not None)
    reader.close()
    until_ended(asking)
    assert done[0].cut(store.streams.get("s/a").id) == group.cut()["s/a"]


def test_checkpoints_begin_by_themselves(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"], checkpoint_s=0.05)
    with group.reader("r") as reader:
        until(lambda: reader.read(timeout_s=0.05) is None and len(group.checkpoints) >= 2)
    assert group.checkpoints[0].name.startswith("auto-")


def test_a_group_is_rewound_and_reset_and_its_readers_hear_of_it(store: Store) -> None:
    write(store, 0, 2)
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        take(reader, 2 * KEYS)
        reader.commit()
        middle = group.cut()
        write(store, 2, 1)
        group.rewind()
        with pytest.raises(ReaderNotInGroup, match="reader 'r' is in group 's/g' no more"):
            list(reader)
    assert group.unread().events == 3 * KEYS
    for place, events in ((middle, KEYS), (ab.TAIL, 0), ({"s/a": ab.HEAD}, 3 * KEYS), ("head", 3 * KEYS)):
        group.reset(place)
        assert group.unread().events == events
    with pytest.raises(NotFound, match="no checkpoint of group 's/g' \\(kept: none\\)"):
        group.reset("c9")
    with pytest.raises(InvalidArgument, match="a place for each"):
        group.reset({"s/b": ab.HEAD})


def test_a_truncated_stream_is_told_once_and_then_read_on_behind_it(store: Store) -> None:
    write(store, 0, 3)
    group = store.reader_group("s/g", streams=["s/a"])
    store.streams.truncate("s/a", store.streams.tail("s/a"))
    write(store, 3, 1)
    assert group.unread().events == KEYS
    with group.reader("r") as reader:
        with pytest.raises(Truncated):
            next(iter(reader))
        assert sequences(take(reader, KEYS)) == {key: [3] for key in range(KEYS)}


def test_a_deleted_group_is_gone_for_its_readers_too(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        group.delete()
        group.delete()
        with pytest.raises(GroupNotFound):
            list(reader)
    for call in (group.unread, group.cut, group.rewind, lambda: group.reader("x"), lambda: group.checkpoints):
        with pytest.raises(GroupNotFound):
            call()
    assert store.reader_groups() == []
    assert store.reader_group("s/g", streams=["s/a"]).readers == []


def test_a_group_goes_on_when_its_stream_is_renamed(store: Store) -> None:
    write(store, 0, 1)
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        take(reader, 3)
        store.streams.rename("s/a", "s/b")
        write(store, 1, 1, "s/b")
        take(reader, 2 * KEYS - 3)
    assert group.streams == ["s/b"] and group.unread().events == 0


# as many readers as there is work for


def test_readers_are_started_and_stopped_with_the_lag(store: Store) -> None:
    write(store, 0, 40)
    group = store.reader_group("s/g", streams=["s/a"])
    called: list[str] = []
    with group.elastic(
        lambda name: called.append(f"+{name}"),
        lambda name: called.append(f"-{name}"),
        readers_max=3,
        events_per_reader=KEYS,
        every_s=0.02,
    ) as readers:
        until(lambda: len(readers.running) == 3)
        group.reset(ab.TAIL)
        until(lambda: readers.running == ["elastic-1"])
    assert called == ["+elastic-1", "+elastic-2", "+elastic-3", "-elastic-3", "-elastic-2", "-elastic-1"]


def test_what_a_callback_raises_is_told_in_the_end(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    readers = group.elastic(lambda name: [][0], print, readers_max=1)
    with pytest.raises(IndexError):
        readers.close()
    with pytest.raises(InvalidArgument):
        group.elastic(print, print, readers_max=0)


# an account


def test_an_audit_counts_what_came_twice_what_is_missing_and_how_old_it_was(store: Store) -> None:
    store.streams.create("s/one")
    with store.writer("s/one") as writer:
        for body in ("w 0", "w 1", "w 1", "w 4", "v 7", "w 2", "no number"):
            writer.write(body, key="k")
        writer.write("w 9", key="other")
    group = store.reader_group("s/g", streams=["s/one"], end=ab.TAIL)

    def source(event: ab.Event) -> tuple[str, int] | None:
        writer, number = event.body.decode().split()
        return (writer, int(number)) if number.isdigit() else None

    audit = group.audit(source)
    with group.reader("r") as reader:
        assert len(list(audit.over(reader))) == 8
    w, v = audit.writers["w"], audit.writers["v"]
    assert (w.events, w.duplicates, w.missing) == (6, 2, 2) and (v.events, v.duplicates, v.missing) == (1, 0, 0)
    assert 0 <= w.latency_us(0.5) <= w.latency_us(0.99) <= w.latency_us_max


# coroutines, closing


def test_a_group_reader_in_a_coroutine(store: Store) -> None:
    write(store, 0, 3)
    group = store.reader_group("s/g", streams=["s/a"], end=ab.TAIL)

    async def read() -> list[bytes]:
        async with group.reader("r") as reader:
            return [event.body async for event in reader]

    assert complete(asyncio.run(read()), 3)
    assert group.unread().events == 0


def test_a_store_that_is_closed_takes_its_readers_out_of_the_group(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river") as store:
        store.streams.create_scope("s")
        prepare(store)
        write(store, 0, 2)
        group = store.reader_group("s/g", streams=["s/a"])
        in_hand = take(group.reader("r"), 1)
    with ab.connect(tmp_path / "river") as store:
        group = store.reader_group("s/g")
        assert group.readers == []
        with group.reader("r") as reader:
            assert set(in_hand) <= set(take(reader, 2 * KEYS))


def test_a_waiting_reader_ends_when_it_is_closed_from_elsewhere(store: Store) -> None:
    reader = store.reader_group("s/g", streams=["s/a"]).reader("r")
    events = iter(reader)  # while it is open: from then on a close ends the iteration, whenever it comes
    found: list[ab.Event] = []
    waiting = started(lambda: found.extend(events))
    time.sleep(0.05)  # it waits by then, or finds it closed: either way it must end
    reader.close()
    until_ended(waiting)
    assert found == []
