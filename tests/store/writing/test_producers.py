"""Producers: each numbered append takes effect once, whoever repeats it, across owners, scales and lost answers."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import (
    AppendUncertain,
    Closed,
    Conflict,
    Fenced,
    InvalidArgument,
    OutOfSequence,
    SchemaMismatch,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
)
from anabranch.model.append import Commit
from anabranch.model.producer import unnamed_producer
from anabranch.store import Store
from tests.store.helpers import Once, Rig, bodies_of, sound
from tests.waiting import until_ended


def batch(number: int, count: int = 6) -> pa.Table:
    """Events that tell their append, over several keys."""
    rows = range(count)
    return pa.table({"key": [f"k{row}" for row in rows], "payload": [b"%d/%d" % (number, row) for row in rows]})


def expected(*numbers: int, count: int = 6) -> list[bytes]:
    return sorted(b"%d/%d" % (number, row) for number in numbers for row in range(count))


def test_a_repeat_gets_the_first_answer_and_appends_nothing(anywhere: Store) -> None:
    with anywhere.producer("s/a", "p") as producer:
        first = [producer.append(batch(number)) for number in range(3)]
        results = [ack.result(60) for ack in first]
        assert [result.sequence for result in results] == [0, 1, 2]
        assert not any(result.duplicate for result in results) and {result.events for result in results} == {6}
        assert producer.last_sequence == 2
        again = producer.append(batch(9), sequence=1).result(60)
        assert again.duplicate and again.ranges == results[1].ranges and again.pointer == results[1].pointer
    with anywhere.producer("s/a", "p", epoch=0) as other:  # another process of the same owner
        assert (other.epoch, other.last_sequence) == (0, 2)
        again = other.append(batch(9), sequence=0).result(60)
        assert again.duplicate and again.ranges == results[0].ranges
        assert other.append(batch(3), sequence=3).result(60).events == 6
    assert sorted(bodies_of(anywhere, "s/a")) == expected(0, 1, 2, 3)
    assert sound(anywhere)


def test_a_repeat_by_another_object_that_was_opened_before_is_a_duplicate(store: Store) -> None:
    store.scopes.create("z")
    store.streams.create("z/raw")
    first, second = store.producer("z/raw", "p", epoch=0), store.producer("z/raw", "p", epoch=0)
    landed = first.append([b"a"], sequence=0).result(60)
    again = second.append([b"a"], sequence=0).result(60)
    assert (landed.duplicate, again.duplicate) == (False, True)
    assert (again.ranges, again.pointer) == (landed.ranges, landed.pointer)


def test_an_answer_too_old_to_be_kept_is_still_a_duplicate(store: Store) -> None:
    count = limits.PRODUCER_ANSWERS_KEPT + 2
    with store.producer("s/a", "p") as producer:
        for number in range(count):
            producer.append([b"%d" % number]).result(60)
    with store.producer("s/a", "p", epoch=0) as other:
        old = other.append([b"x"], sequence=1).result(60)
        assert old.duplicate and old.pointer is None and old.events is None and old.ranges == ()
        kept = other.append([b"x"], sequence=2).result(60)
        assert kept.duplicate and kept.pointer is not None and store.fetch(kept.pointer).body == b"2"


def test_a_gap_and_an_old_epoch_are_refused(anywhere: Store) -> None:
    old = anywhere.producer("s/a", "p")
    old.append([b"0"]).result(60)
    with pytest.raises(OutOfSequence) as gap:
        old.append([b"2"], sequence=2)
    assert (gap.value.expected, gap.value.actual) == (1, 2)
    owner = anywhere.producer("s/a", "p")
    assert (owner.epoch, owner.last_sequence) == (1, 0)
    with pytest.raises(Fenced) as fenced:
        old.append([b"1"]).result(60)
    assert (fenced.value.carried, fenced.value.fence) == (0, 1)
    with pytest.raises(Fenced):
        old.append([b"1"]).result(60)
    with pytest.raises(Fenced):
        anywhere.producer("s/a", "p", epoch=0)
    owner.append([b"1"]).result(60)
    assert bodies_of(anywhere, "s/a").count(b"1") == 1


def test_a_later_epoch_counts_from_0_again(store: Store) -> None:
    store.producer("s/a", "p", epoch=3).append([b"a"]).result(60)
    later = store.producer("s/a", "p", epoch=7)
    assert (later.epoch, later.last_sequence) == (7, -1)
    with pytest.raises(OutOfSequence):
        later.append([b"c"], sequence=1)
    assert later.append([b"b"], sequence=0).result(60).sequence == 0
    assert sorted(bodies_of(store, "s/a")) == [b"a", b"b"]
    (info,) = store.producers.list("s/a")
    assert (info.name, info.epoch, info.last_sequence) == ("p", 7, 0)


def test_two_processes_of_one_owner_may_both_send_every_append(anywhere: Store) -> None:
    """As a client does whose broker failed: it sends to another one what has no answer yet."""
    count, failures = 40, []
    producers = [anywhere.producer("s/a", "p", epoch=0) for _ in range(2)]

    def send(producer: ab.Producer) -> None:
        try:
            for number in range(count):
                producer.append(batch(number), sequence=number).result(60)
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=send, args=(producer,)) for producer in producers]
    for thread in threads:
        thread.start()
    until_ended(*threads)
    assert not failures, failures[0]
    assert sorted(bodies_of(anywhere, "s/a")) == expected(*range(count))
    assert sound(anywhere)


def test_an_append_goes_to_the_new_segments_of_a_scale_as_a_whole(anywhere: Store) -> None:
    with anywhere.producer("s/a", "p") as producer:
        acks = []
        for number in range(30):
            acks.append(producer.append(batch(number)))
            if number % 6 == 3:
                anywhere.streams.scale("s/a", 1 + number % 5)
        results = [ack.result(60) for ack in acks]
        assert {result.events for result in results} == {6} and not any(result.duplicate for result in results)
    with anywhere.producer("s/a", "p", epoch=0) as again:  # the answers name segments that are sealed by now
        assert [again.append(batch(9), sequence=n).result(60).ranges for n in range(20, 30)] == [
            result.ranges for result in results[20:]
        ]
    assert sorted(bodies_of(anywhere, "s/a")) == expected(*range(30))
    with anywhere.reader("s/a") as reader:
        order = [event.body for event in reader if event.key == "k0"]
    assert order == [b"%d/0" % number for number in range(30)]


@pytest.mark.parametrize("landed", [True, False])
def test_an_append_whose_answer_was_lost_lands_once(landed: bool, tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.store.streams.create("s/a", scaling=3)
        producer = rig.store.producer("s/a", "p")
        lost = Once(AppendUncertain("the connection was lost"), 2)
        if landed:
            rig.catalog.after = lost
        else:
            rig.catalog.before = lost
        acks = [producer.append(batch(number)) for number in range(5)]
        results = [ack.result(60) for ack in acks]
        assert lost.left == 0
        assert {result.events for result in results} == {6}
        found = {
            (each.segment, offset) for r in results for each in r.ranges for offset in range(each.start, each.stop)
        }
        assert len(found) == 30
        assert sorted(bodies_of(rig.store, "s/a")) == expected(*range(5))


def test_what_can_not_be_resolved_is_uncertain_and_ends_the_producer(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.store.streams.create("s/a", scaling=2)
        producer = rig.store.producer("s/a", "p")
        producer.append(batch(0)).result(60)
        rig.catalog.after = Once(AppendUncertain("the connection was lost"), 1_000)
        with pytest.raises(AppendUncertain):
            producer.append(batch(1)).result(60)
        rig.catalog.after = lambda commit: None
        with pytest.raises(AppendUncertain):  # a later append must not take the number of one that may have landed
            producer.append(batch(2)).result(60)
        again = rig.store.producer("s/a", "p")
        assert again.last_sequence == 1, "it had landed"
        assert again.append(batch(2)).result(60).sequence == 2
        assert sorted(bodies_of(rig.store, "s/a")) == expected(0, 1, 2)


def test_an_owner_that_was_replaced_while_its_answer_was_lost_learns_what_is_known(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.store.streams.create("s/a", scaling=2)
        producer = rig.store.producer("s/a", "p")
        take = Once(AppendUncertain("the connection was lost"))

        def replace(commit: Commit) -> None:
            if take.left:
                rig.catalog.after = lambda commit: None
                with rig.catalog.writing() as txn:
                    stream = commit.units[0].producer.stream  # type: ignore[union-attr]
                    row = txn.producer(stream, "p")
                    assert row is not None
                    txn.put_producer(stream, "p", type(row)(row.epoch + 1, row.last, row.answers, row.seen_at))
                take()

        rig.catalog.after = replace
        result = producer.append(batch(0)).result(60)  # it landed, and its answer is kept
        assert result.events == 6 and result.sequence == 0
        with pytest.raises(Fenced):
            producer.append(batch(1)).result(60)
        assert sorted(bodies_of(rig.store, "s/a")) == expected(0)


def test_after_a_refusal_nothing_more_is_appended(tmp_path: Path) -> None:
    with Rig(tmp_path) as rig:
        rig.store.streams.create("s/a", scaling=2)
        producer = rig.store.producer("s/a", "p")
        rig.catalog.before = Once(StoreUnavailable("no"))
        acks = [producer.append(batch(0))]
        with suppress(StoreUnavailable):  # as soon as the first one is refused
            acks += [producer.append(batch(number)) for number in (1, 2)]
        for ack in acks:
            with pytest.raises((StoreUnavailable, OutOfSequence)):
                ack.result(60)
        with pytest.raises(StoreUnavailable):
            producer.append(batch(3))
        assert producer.last_sequence == -1 and bodies_of(rig.store, "s/a") == []
        again = rig.store.producer("s/a", "p")
        assert [again.append(batch(number), sequence=number).result(60).sequence for number in range(3)] == [0, 1, 2]
        assert sorted(bodies_of(rig.store, "s/a")) == expected(0, 1, 2)


def test_a_number_that_another_process_used_is_no_answer_for_who_counts_alone(store: Store) -> None:
    """Both count by themselves in one epoch, which is a mistake: it is reported, and no event is taken for a repeat."""
    one, other = (store.producer("s/a", "p", epoch=0) for _ in range(2))
    one.append([b"mine"]).result(60)
    with pytest.raises(Conflict, match="used by another process"):
        other.append([b"theirs"]).result(60)
    assert bodies_of(store, "s/a") == [b"mine"]


def test_a_writer_of_a_producer_goes_on_where_the_last_one_stopped(anywhere: Store) -> None:
    wanted = [b"%d" % number for number in range(40)]
    with anywhere.writer("s/a", producer="load") as writer:
        assert writer.next_number == 0
        for body in wanted[:25]:
            ack = writer.write(body, key="k")
        assert anywhere.fetch(ack.result(60)).body == wanted[24]
        writer.write_batch(pa.table({"key": ["k"], "payload": [wanted[25]]})).result(60)
    with anywhere.writer("s/a", producer="load") as writer:
        assert writer.next_number == 26
        for body in wanted[writer.next_number :]:
            writer.write(body, key="k")
    assert bodies_of(anywhere, "s/a") == wanted
    with pytest.raises(InvalidArgument, match="not both"):
        anywhere.writer("s/a", producer="load", writer_id="w")


def test_a_producer_follows_a_rename_and_ends_with_its_stream(anywhere: Store) -> None:
    producer = anywhere.producer("s/a", "p")
    first = producer.append(batch(0)).result(60)
    anywhere.streams.rename("s/a", "s/b")
    producer.append(batch(1)).result(60)
    anywhere.streams.copy("s/b", "s/copy")
    assert anywhere.producers.list("s/copy") == []  # what the source was sent says nothing about the copy
    assert anywhere.producer("s/copy", "p").append(batch(7), sequence=0).result(60).duplicate is False
    assert anywhere.producer("s/b", "p", epoch=0).append(batch(9), sequence=0).result(60).ranges == first.ranges
    anywhere.streams.delete("s/b")
    with pytest.raises(StreamNotFound):
        producer.append(batch(2)).result(60)
    anywhere.streams.create("s/b", scaling=2)
    assert anywhere.producer("s/b", "p").last_sequence == -1


def test_a_sealed_stream_still_answers_repeats(store: Store) -> None:
    first = store.producer("s/a", "p").append([b"x"]).result(60)
    store.streams.seal("s/a")
    again = store.producer("s/a", "p", epoch=0)
    assert again.append([b"x"], sequence=0).result(60).ranges == first.ranges
    with pytest.raises(StreamSealed):
        again.append([b"y"], sequence=1)


def test_producers_survive_a_backup_and_a_restore(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "a", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
        with store.producer("s/a", "p") as producer:
            results = [producer.append(batch(number)).result(60) for number in range(3)]
        store.backup(str(tmp_path / "backup"))
    ab.restore(str(tmp_path / "backup"), tmp_path / "b")
    with ab.connect(tmp_path / "b") as restored:
        again = restored.producer("s/a", "p", epoch=0)
        assert again.last_sequence == 2
        assert again.append(batch(9), sequence=2).result(60).ranges == results[2].ranges
        again.append(batch(3), sequence=3).result(60)
        assert sorted(bodies_of(restored, "s/a")) == expected(0, 1, 2, 3)
        assert sound(restored)


def test_a_stream_keeps_a_bounded_number_of_producers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_PER_STREAM_MAX", 3)
    for name in "abc":
        store.producer("s/a", name)
    with pytest.raises(Conflict, match="3 producers"):
        store.producer("s/a", "d")
    store.producer("s/a", "c")
    assert store.producers.drop("s/a", "b") and not store.producers.drop("s/a", "b")
    store.producer("s/a", "d")
    assert [info.name for info in store.producers.list("s/a")] == ["a", "c", "d"]


def test_unnamed_producers_that_were_never_closed_make_room_after_a_week(
    anywhere: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_PER_STREAM_MAX", 3)
    left = [unnamed_producer(f"{number:024x}") for number in range(2)]
    for name in (*left, "named"):
        anywhere.producer("s/a", name)
    with pytest.raises(Conflict, match="3 producers"):
        anywhere.producer("s/a", "next")
    monkeypatch.setattr(limits, "PRODUCERS_UNNAMED_KEPT_US", -60_000_000)  # as if all had been seen long ago
    anywhere.producer("s/a", "next")
    assert [info.name for info in anywhere.producers.list("s/a")] == ["named", "next"]


@pytest.mark.parametrize("name", ["", "a\0b", "x" * (limits.PRODUCER_NAME_BYTES_MAX + 1), 7])
def test_a_name_that_no_producer_has_is_refused(store: Store, name: Any) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        store.producer("s/a", name)


def test_bad_appends_are_refused_and_take_no_number(store: Store) -> None:
    for epoch in (-1, 1.5, True, "1"):
        with pytest.raises(InvalidArgument, match="epoch"):
            store.producer("s/a", "p", epoch=epoch)  # type: ignore[arg-type]
    store.streams.create("s/typed", schema=pa.schema([("n", pa.int64())]))
    producer = store.producer("s/typed", "p")
    for sequence in (-1, 1.5, True, "1"):
        with pytest.raises(InvalidArgument, match="number of an append"):
            producer.append([{"n": 1}], sequence=sequence)  # type: ignore[arg-type]
    for bad in ([{"n": "x"}], [{"m": 1}], pa.table({"m": [1]})):
        with pytest.raises(SchemaMismatch):
            producer.append(bad)
    nothings: list[Any] = [[], pa.table({"n": pa.array([], pa.int64())})]
    for nothing in nothings:
        with pytest.raises(InvalidArgument, match="at least one event"):
            producer.append(nothing)
    with pytest.raises(InvalidArgument):
        producer.append(7)
    assert producer.append([{"n": 1}, {"n": 2}]).result(60).sequence == 0
    producer.close()
    producer.close()
    with pytest.raises(Closed):
        producer.append([{"n": 1}])
    writer = store.writer("s/a", producer="w")
    with pytest.raises(InvalidArgument, match="expected"):
        writer.write(b"x", expected=0)
    with pytest.raises(SchemaMismatch):
        store.producer("s/a", "raw").append([{"payload": b"x", "colour": "red"}])
    events = [{"payload": b"x", "key": 7, "time": "2026-01-01T00:00:00Z"}, b"y", "z"]
    assert store.producer("s/a", "raw").append(events).result(60).events == 3


def test_a_large_event_has_a_number_too(tmp_path: Path) -> None:
    with Rig(tmp_path, event_bytes_max=1_000) as rig:
        rig.store.streams.create("s/a")
        with rig.store.writer("s/a", producer="w") as writer:
            for size in (10, 5_000, 20):
                writer.write(bytes(size))
            assert writer.next_number == 3
        assert [len(body) for body in bodies_of(rig.store, "s/a")] == [10, 5_000, 20]
        assert rig.store.producer("s/a", "w").last_sequence == 2


def test_many_threads_share_a_producer(store: Store) -> None:
    failures: list[BaseException] = []
    with store.producer("s/a", "p") as producer:

        def send() -> None:
            try:
                for _ in range(30):
                    producer.append([b"x"])
            except BaseException as exc:
                failures.append(exc)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        until_ended(*threads)
        producer.flush()
        assert producer.last_sequence == 119
    assert not failures, failures[0]
    assert len(bodies_of(store, "s/a")) == 120
