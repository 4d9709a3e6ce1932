"""Reader groups in one process: who reads what, handing over, being taken for dead."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import (
    Closed,
    GroupNotFound,
    InvalidArgument,
    InvalidCut,
    ReaderNotInGroup,
    StreamNotFound,
)
from anabranch.store import Store
from tests.store.groups.kit import KEYS, complete, sequences, started, take, write
from tests.store.helpers import sound
from tests.waiting import until, until_ended


def test_readers_share_a_stream_while_it_is_split_and_merged(anywhere: Store) -> None:
    store = anywhere
    write(store, 0, 10)
    group = store.groups.open("s/g", streams=["s/a"])
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


def test_a_group_is_created_once_and_reopened(store: Store) -> None:
    with pytest.raises(GroupNotFound, match="reader group 's/g' not found"):
        store.groups.open("s/g")
    with pytest.raises(StreamNotFound):
        store.groups.open("s/g", streams=["s/none"])
    store.streams.create("s/b")
    made = store.groups.open("s/g", streams=["s/a"])
    assert store.groups.open("s/g").streams == made.streams == ["s/a"]
    assert store.groups.open("s/g", streams="s/a").streams == ["s/a"]
    with pytest.raises(InvalidArgument, match="reads other streams"):
        store.groups.open("s/g", streams=["s/b"])
    for wrong in ([], ["s/a", "s/a"]):
        with pytest.raises(InvalidArgument, match="each only once"):
            store.groups.open("s/h", streams=wrong)
    assert store.groups.list() == store.groups.list("s") == ["s/g"]
    assert [str(info.name) for info in store.streams.list("s")] == ["s/a", "s/b"]


def test_a_group_over_several_streams(store: Store) -> None:
    store.streams.create("s/t", schema=pa.schema([("device", pa.string()), ("n", pa.int64())]), key="device")
    with store.writer("s/t") as writer:
        writer.write_batch(pa.table({"device": ["x", "y"], "n": [1, 2]}))
    write(store, 0, 2)
    group = store.groups.open("s/g", streams=["s/a", "s/t"], end=ab.TAIL)
    with group.reader("r") as reader:
        batches = list(reader.batches())
    rows: dict[str, int] = defaultdict(int)
    for batch in batches:
        rows[batch.schema.metadata[b"stream"].decode()] += batch.num_rows
        assert batch.schema.names[-3:] == ["_segment", "_offset", "_appended"]
    assert rows == {"s/a": 2 * KEYS, "s/t": 2}
    assert group.cut().keys() == {"s/a", "s/t"} and group.unread().events == 0


def test_a_group_reads_from_its_start_to_its_end(store: Store) -> None:
    write(store, 0, 2)
    middle = store.cuts.tail("s/a")
    write(store, 2, 3)
    late = store.groups.open("s/late", streams=["s/a"], start=middle, end={"s/a": ab.TAIL})
    write(store, 5, 1)
    early = store.groups.open("s/early", streams=["s/a"], end=middle)
    assert (late.unread().events, early.unread().events) == (3 * KEYS, 2 * KEYS)
    with late.reader("r") as reader:
        assert sorted(sequences([event.body for event in reader])[0]) == [2, 3, 4]
    with early.reader("r") as reader:
        assert complete([event.body for event in reader], 2)
    with pytest.raises(InvalidArgument, match="a place for each of s/a"):
        store.groups.open("s/x", streams=["s/a"], start={"s/b": ab.HEAD})


def test_unread_counts_events_and_bytes_of_successors_too(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    assert (group.unread().events, group.unread().bytes) == (0, 0)
    write(store, 0, 3)
    store.streams.scale("s/a", 1)
    write(store, 3, 1)
    unread = group.unread()
    assert unread.events == 4 * KEYS == sum(events for events, _ in unread.segments.values())
    whole = sum(log.size for log in store.streams.view("s/a").logs.values())
    assert unread.bytes == whole == sum(size for _, size in unread.segments.values())


def test_a_new_reader_gets_its_share_and_releases_it_on_leaving(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r1") as first:
        assert len(first.segments) == 4 and group.distribution().unassigned == ()
        with group.reader("r2") as second:
            until(lambda: len(first.segments) == len(second.segments) == 2)
            assert {len(each) for each in group.distribution().readers.values()} == {2}
            assert not set(first.segments) & set(second.segments)
        until(lambda: len(first.segments) == 4)
    assert group.distribution().readers == {} and len(group.distribution().unassigned) == 4


@pytest.mark.parametrize(("lease_s", "refresh_s", "every_s"), [(240, 30, 30), (8, 30, 1), (8, 0.02, 0.02)])
def test_the_refresh_interval_is_the_groups_but_a_fraction_of_the_lease(
    store: Store, lease_s: float, refresh_s: float, every_s: float
) -> None:
    store.groups.open("s/g", streams=["s/a"], lease_s=lease_s, refresh_s=refresh_s)
    with store.groups.open("s/g").reader("r") as reader:
        assert reader._refresh_s == every_s


def test_a_joining_reader_gets_the_current_segments_of_a_scaled_stream(anywhere: Store) -> None:
    store = anywhere
    group = store.groups.open("s/g", streams=["s/a"], start=ab.TAIL)
    for segments in (1, 6, 3):
        store.streams.scale("s/a", segments)  # no reader is there to note it
    write(store, 0, 2)
    with group.reader("r") as reader:
        assert [each.segment for each in reader.segments] == [each.id for each in store.streams.view("s/a").current]
        store.streams.scale("s/a", 5)
        write(store, 2, 1)
        assert complete(take(reader, 3 * KEYS), 3) and reader.read() is None
        store.streams.scale("s/a", 2)
        with group.reader("r2") as other:
            until(lambda: len(reader.segments) == len(other.segments) == 1)
            current = {each.id for each in store.streams.view("s/a").current}
            assert {each.segment for each in (*reader.segments, *other.segments)} == current


def test_more_readers_than_segments_leave_some_idle(store: Store) -> None:
    store.streams.create("s/one")
    group = store.groups.open("s/g", streams=["s/one"])
    with group.reader("r1") as first, group.reader("r2") as second:
        write(store, 0, 3, "s/one")
        assert len(take(first, 3 * KEYS)) == 3 * KEYS
        assert second.read(timeout_s=0.2) is None and second.segments == []


def test_a_segment_is_not_released_while_its_event_is_processed(store: Store) -> None:
    write(store, 0, 4)
    group = store.groups.open("s/g", streams=["s/a"])
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


def test_segments_with_uncommitted_events_are_not_released(store: Store) -> None:
    write(store, 0, 4)
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r1", delivery="exactly_once") as first:
        while first.read() is not None:
            pass
        begun = {each for each, offset in first.position if offset}
        assert len(begun) > 1
        with group.reader("r2"), group.reader("r3"), group.reader("r4"):
            with first._lock:
                first._assigned.sync_with_group()
            assert begun <= set(first.segments)
            first.commit()
            until(lambda: len(first.segments) == 1)


def test_a_segment_stays_until_its_batch_is_handed_out(store: Store) -> None:
    write(store, 0, 4)
    group = store.groups.open("s/g", streams=["s/a"])
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


def test_a_reader_opened_again_fences_the_former_one(store: Store) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
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


def test_an_offline_reader_is_replaced_at_once(store: Store) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"])
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


def test_an_offline_position_after_the_end_is_refused(store: Store) -> None:
    write(store, 0, 2)
    end = store.cuts.tail("s/a")
    group = store.groups.open("s/g", streams=["s/a"], end={"s/a": end})
    write(store, 2, 2)  # behind the group's end, so there, but none of its business
    with group.reader("r1", delivery="exactly_once") as reader:
        take(reader, 1)

        def ahead(events: int) -> ab.Position:
            return ab.Position.of({each: end.as_dict()[each.segment] + events for each in reader.segments})

        for too_far in (1, 1_000):
            with pytest.raises(InvalidCut):
                group.reader_offline("r1", ahead(too_far))
        assert group.readers == ["r1"] and group.unread().events == 2 * KEYS
        group.reader_offline("r1", ahead(0))
    assert not group.readers and group.unread().events == 0


def test_a_reader_without_heartbeats_is_presumed_dead_and_gets_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, 0, 5)
    group = store.groups.open("s/g", streams=["s/a"], lease_s=0.4)
    with monkeypatch.context() as patched:
        patched.setattr(ab.GroupReader, "_heartbeat_round", lambda self: None)  # as if its process were stopped
        silent = group.reader("silent")
    given = take(silent, 5)
    with group.reader("r") as reader:
        assert len(take(reader, 5 * KEYS)) == 5 * KEYS  # nothing that the silent one was given had been accepted
        assert group.readers == ["r"] and len(given) == 5
        with pytest.raises(ReaderNotInGroup):
            silent.commit()
    silent.close()
    assert group.unread().events == 0


def test_what_can_not_be_meant_is_refused(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    with pytest.raises(InvalidArgument, match="expected delivery"):
        group.reader("r", delivery="twice")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="exactly_once"):
        group.reader("r", positions=ab.SqlPositions(sqlite3.connect(":memory:")))
    with pytest.raises(InvalidArgument, match="expected a reader name"):
        group.reader("")
    with pytest.raises(InvalidArgument, match="expected batch_rows"):
        group.reader("r", batch_rows=0)
    for wrong in ({"lease_s": 0.0}, {"checkpoint_s": 0.0}, {"refresh_s": 0.0}):
        with pytest.raises(InvalidArgument):
            store.groups.open("s/h", streams=["s/a"], **wrong)  # type: ignore[arg-type]
    assert group.readers == []
