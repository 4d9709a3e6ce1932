"""Watermarks: what writers note, what readers may rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument, InvalidCut, NotFound, StreamNotFound, TransactionAborted
from anabranch.model.times import to_micros
from anabranch.store import Store
from anabranch.streams.companions.api import Companions
from tests.store.helpers import sound, store_at
from tests.waiting import until


def time_of(store: Store, stream: str = "s/a") -> int | None:
    mark = store.watermarks.get(stream)
    return None if mark is None else mark.time_us


def write(writer: ab.Writer, *times: int) -> None:
    for time in times:
        writer.write(b"%d" % time, key=str(time), time=time)


def times_behind(store: Store, cut: ab.StreamCut) -> list[int]:
    with store.reader("s/a", start=cut) as reader:
        return sorted(event.time_us or 0 for event in reader)


def kept_for_streams(store: Store) -> list[ab.StreamName]:
    """What the store keeps for its streams."""
    return [info.name for info in store.streams.list(internal=True) if info.name.internal]


def test_without_noted_times_there_is_no_watermark(anywhere: Store) -> None:
    assert anywhere.watermarks.get("s/a") is None
    with anywhere.reader("s/a") as reader:
        assert reader.time_window() == ab.TimeWindow(None, None)
    assert [str(info.name) for info in anywhere.streams.list(internal=True)] == ["s/a"]  # asking makes nothing


def test_no_older_event_is_after_the_watermarks_cut(anywhere: Store) -> None:
    with anywhere.writer("s/a") as one, anywhere.writer("s/a") as other:
        one.note_time(0)
        other.note_time(0)
        for base in range(100, 600, 100):
            write(one, base, base + 7, base + 30)
            write(other, base + 5, base + 60)
            if base == 300:
                anywhere.streams.scale("s/a", 3)
            one.note_time(base + 50)
            other.note_time(base + 90)
            mark = anywhere.watermarks.get("s/a")
            write(one, base + 50)
            one.flush()
            assert mark is not None
            assert all(time >= mark.time_us for time in times_behind(anywhere, mark.cut))
            assert mark.time_us >= base - 10  # the least of the two
    assert sound(anywhere)


def test_a_reader_has_a_time_window_at_each_position(anywhere: Store) -> None:
    with anywhere.writer("s/a") as writer:
        for time in range(1_000, 9_000, 1_000):
            write(writer, time, time + 1, time + 2, time + 3)
            writer.note_time(time + 500)
    seen: list[int] = []
    with anywhere.reader("s/a") as reader:
        lowers = []
        for event in reader:
            seen.append(event.time_us or 0)
            window = reader.time_window()
            lowers.append(window.lower_us or 0)
            left = times_behind(anywhere, reader.position)
            assert all(time >= (window.lower_us or 0) for time in left)
            assert window.upper_us is None or all(time <= window.upper_us for time in seen)
    assert lowers == sorted(lowers)
    assert lowers[-1] == 8_500


def test_a_time_window_at_an_old_position(store: Store) -> None:
    with store.writer("s/a") as writer:
        for time in range(1, 40):
            write(writer, time)
            writer.note_time(time)
        with store.reader("s/a", start=ab.HEAD) as behind, store.reader("s/a", start=ab.TAIL) as ahead:
            assert ahead.time_window().lower_us == 39
            assert behind.time_window() == ab.TimeWindow(None, to_micros(1))
            assert ahead.time_window().lower_us == 39


def test_the_watermark_waits_for_all_writers_until_they_end(store: Store) -> None:
    fast, slow = store.writer("s/a"), store.writer("s/a")
    slow.note_time(10)
    fast.note_time(20)
    assert time_of(store) == 10
    fast.note_time(30)
    assert time_of(store) == 10
    slow.close()
    assert time_of(store) == 30


def test_an_idle_writer_stops_holding_back_the_watermark(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    silent, other = store.writer("s/a"), store.writer("s/a")
    silent.note_time(10)
    other.note_time(20)
    assert time_of(store) == 10
    monkeypatch.setattr(limits, "TIME_IDLE_US", 0)
    other.note_time(25)
    assert time_of(store) == 10  # with no patience at all, nobody is left
    monkeypatch.setattr(limits, "TIME_IDLE_US", 60_000_000)
    other.note_time(30)
    assert time_of(store) == 30


def test_the_idle_time_is_set_per_stream(anywhere: Store) -> None:
    anywhere.streams.create("s/b")
    assert anywhere.watermarks.idle("s/a") == 60
    assert anywhere.watermarks.idle("s/a", 0.001) == 0.001
    assert [anywhere.watermarks.idle(name) for name in ("s/a", "s/b")] == [0.001, 60]
    for name in ("s/a", "s/b"):
        silent, other = anywhere.writer(name), anywhere.writer(name)
        silent.note_time(10)
        noted_at = anywhere.runtime.clock.now()
        until(lambda noted_at=noted_at: anywhere.runtime.clock.now() > noted_at + 1_000)  # type: ignore[misc]
        assert bool(anywhere.watermarks.status(name).idle) == (name == "s/a")
        other.note_time(20)
    assert [time_of(anywhere, name) for name in ("s/a", "s/b")] == [20, 10]
    for too_short in (0, -1, 1e-7):
        with pytest.raises(InvalidArgument, match="expected idle_s above 0"):
            anywhere.watermarks.idle("s/a", too_short)
    with pytest.raises(StreamNotFound):
        anywhere.watermarks.idle("s/nowhere")


def test_a_window_at_a_cut_of_another_stream_is_refused(anywhere: Store) -> None:
    anywhere.streams.create("s/b")
    elsewhere = anywhere.cuts.tail("s/b")
    with anywhere.writer("s/a") as writer:
        for _ in range(2):  # before a time was noted, and after
            with pytest.raises(InvalidCut, match="belongs to stream"):
                anywhere.watermarks.window("s/a", elsewhere)
            writer.note_time(10)


def test_a_writer_notes_no_time_before_its_last(store: Store) -> None:
    with store.writer("s/a") as writer:
        writer.note_time(10)
        with pytest.raises(InvalidArgument, match="expected a time of at least"):
            writer.note_time(9)
        writer.note_time(10)


def test_times_are_noted_automatically(anywhere: Store) -> None:
    with anywhere.writer("s/a", note_time_s=0.02) as writer:
        writer.write(b"x")
        before = anywhere.runtime.clock.now()
        until(lambda: (time_of(anywhere) or 0) > before)
        mark = anywhere.watermarks.get("s/a")
        assert mark is not None
        writer.write(b"y")
        writer.flush()
        assert all(time >= mark.time_us for time in times_behind(anywhere, mark.cut))
    with pytest.raises(InvalidArgument):
        anywhere.writer("s/a", note_time_s=0)


def test_a_group_has_a_time_window_of_its_accepted_events(store: Store) -> None:
    store.streams.create("s/b")
    group = store.groups.open("s/g", streams=["s/a", "s/b"])
    with store.writer("s/a") as writer, store.writer("s/b") as other:
        write(writer, 1, 2, 3)
        writer.note_time(10)
        other.note_time(4)
        with group.reader("r", delivery="exactly_once") as reader:
            while group.unread().events:
                reader.read(1.0)
                reader.commit()
            assert reader.time_window("s/a").lower_us == 10
            assert group.time_window().lower_us == 4
        with pytest.raises(NotFound):
            group.time_window("s/none")


def test_a_renamed_stream_keeps_its_watermark(store: Store) -> None:
    with store.writer("s/a") as writer:
        writer.note_time(10)
        store.streams.rename("s/a", "s/b")
        writer.note_time(20)
    mark = store.watermarks.get("s/b")
    assert mark is not None
    assert mark.time_us == 20
    with pytest.raises(StreamNotFound):
        store.watermarks.get("s/nowhere")


def test_truncated_events_count_as_read(store: Store) -> None:
    with store.writer("s/a") as writer:
        for time in (1, 2, 3):
            write(writer, time)
            writer.note_time(time)
        store.streams.scale("s/a", 3)
        store.streams.truncate("s/a", store.cuts.tail("s/a"))
        with store.reader("s/a") as reader:
            assert reader.time_window().lower_us == 3


def test_old_entries_are_truncated_and_the_watermark_stays(store: Store) -> None:
    with store.writer("s/a") as writer:
        for time in range(1, 10):
            write(writer, time)
            writer.note_time(time)
        (name,) = kept_for_streams(store)
        tail = store.cuts.tail(name).as_dict()
        cut = ab.StreamCut.of(store.streams.get(name).id, {segment: at - 1 for segment, at in tail.items()})
        store.streams.truncate(name, cut)
        assert time_of(store) == 9
        with store.reader("s/a") as reader:
            assert reader.time_window() == ab.TimeWindow(None, to_micros(9))


def test_a_writer_of_a_deleted_stream_closes_cleanly(store: Store) -> None:
    writer = store.writer("s/a")
    writer.note_time(1)
    store.streams.delete("s/a")
    writer.close()
    with pytest.raises(StreamNotFound):
        store.watermarks.get("s/a")


def test_the_upper_bound_holds_for_all_writers(store: Store) -> None:
    with store.writer("s/a") as fast, store.writer("s/a") as slow:
        write(slow, 10)
        slow.note_time(10)
        write(fast, 20, 90)
        fast.note_time(90)
        write(slow, 30)
        slow.note_time(30)
        seen = []
        with store.reader("s/a") as reader:
            for event in reader:
                seen.append(event.time_us or 0)
                upper = reader.time_window().upper_us
                assert upper is None or max(seen) <= upper
    mark = store.watermarks.get("s/a")
    assert mark is not None
    assert (mark.time_us, mark.latest_us) == (90, 90)  # behind the ends of both


def test_a_moved_stream_keeps_its_watermark_after_reopening(tmp_path: Path) -> None:
    with store_at("sqlite", tmp_path) as store:
        store.streams.create("s/a", scaling=2)
        store.scopes.create("t")
        with store.writer("s/a") as writer:
            writer.note_time(10)
    with ab.connect(tmp_path / "store", create=True) as store:
        store.streams.move("s/a", "t")
        store.scopes.rename("t", "u")
        store.streams.rename("u/a", "u/b")
    with ab.connect(tmp_path / "store", create=True) as store:
        mark = store.watermarks.get("u/b")
        assert mark is not None
        assert mark.time_us == 10


@pytest.mark.parametrize("how", ["delete", "scope", "stitch"])
def test_noted_times_are_deleted_with_the_stream(anywhere: Store, how: str) -> None:
    store = anywhere
    store.streams.create("s/b")
    for name in ("s/a", "s/b"):
        with store.writer(name) as writer:
            writer.note_time(10)
    (gone,) = [name for name in kept_for_streams(store) if f"{store.streams.get('s/a').id:016x}" in name.name]
    match how:
        case "delete":
            store.streams.delete("s/a")
        case "scope":
            store.streams.move("s/b", gone.scope)  # it is to stay
            store.scopes.delete("s", recursive=True)
            store.scopes.create("s")
            store.streams.move(f"{gone.scope}/b", "s")
        case "stitch":
            store.streams.stitch(["s/a"], into="s/c", keep_sources=False)
            store.collect()  # upkeep does what the other two do by themselves
    left = kept_for_streams(store)
    assert [str(name).rpartition("-")[2] for name in left] == [f"{store.streams.get('s/b').id:016x}"]
    assert time_of(store, "s/b") == 10
    assert sound(store)


def test_upkeep_finishes_an_interrupted_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_at("sqlite", tmp_path) as store:
        store.streams.create("s/a", scaling=2)
        with store.writer("s/a") as writer:
            writer.note_time(10)
        monkeypatch.setattr(Companions, "sweep", lambda self: 0)  # as if it was killed before
        store.streams.delete("s/a")
        assert len(kept_for_streams(store)) == 1
    monkeypatch.undo()
    with ab.connect(tmp_path / "store", create=True) as store:
        store.collect()
        assert kept_for_streams(store) == []


def test_nothing_is_kept_for_a_deleted_stream(store: Store) -> None:
    writer = store.writer("s/a")
    store.streams.delete("s/a")
    with pytest.raises(StreamNotFound):
        writer.note_time(1)
    assert kept_for_streams(store) == []


# how it stands


def test_the_status_has_the_lag_and_the_writers(anywhere: Store) -> None:
    assert anywhere.watermarks.statuses() == []
    empty = anywhere.watermarks.status("s/a")
    assert (empty.watermark, empty.newest_us, empty.lag_us, empty.stalled_us, empty.writers) == (
        None,
        None,
        None,
        None,
        (),
    )
    with anywhere.writer("s/a") as slow, anywhere.writer("s/a") as fast:
        write(fast, 5, 90)
        slow.note_time(10)
        fast.note_time(90)
        (status,) = anywhere.watermarks.statuses()
        assert (status.stream, status.newest_us, status.lag_us) == ("s/a", 90, 80)
        assert [(each.writer, each.time_us) for each in status.writers] == [(slow.id, 10), (fast.id, 90)]
        assert status.stalled_us is not None
        assert status.idle == ()
        slow.note_time(90)
        assert anywhere.watermarks.status("s/a").lag_us == 0


def test_the_status_names_the_writers_that_are_idle(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.writer("s/a") as writer:
        writer.note_time(10)
        monkeypatch.setattr(limits, "TIME_IDLE_US", 0)
        assert store.watermarks.status("s/a").idle == (writer.id,)


# transactions


def test_a_commit_notes_a_time_for_all_its_streams(anywhere: Store) -> None:
    anywhere.streams.create("s/b")
    for minute in (1, 2):
        with anywhere.transaction() as txn:
            for name in ("s/a", "s/b"):
                txn.writer(name).write(b"x", key="k", time=60 * minute)
            assert [time_of(anywhere, name) for name in ("s/a", "s/b")] == [(60 * minute) if minute > 1 else None] * 2
            txn.commit(note_time=60 * (minute + 1))
        for name in ("s/a", "s/b"):
            mark = anywhere.watermarks.get(name)
            assert mark is not None
            assert (mark.time_us, mark.cut) == (60 * (minute + 1), anywhere.cuts.tail(name))
            assert anywhere.watermarks.status(name).writers == ()  # nobody waits for a transaction that is over


def test_writers_of_transactions_are_waited_for_by_name(store: Store) -> None:
    def commit(time: int, writer: str) -> None:
        with store.transaction() as txn:
            txn.writer("s/a").write(b"x", time=time)
            txn.commit(note_time=time, writer=writer)

    commit(10, "one")
    commit(20, "other")
    assert time_of(store) == 10
    commit(30, "one")
    assert time_of(store) == 20
    with pytest.raises(InvalidArgument, match="expected a time of at least"):
        commit(5, "one")
    assert len(times_behind(store, store.cuts.head("s/a"))) == 4  # the events are there all the same


def test_a_repeated_commit_notes_the_same_time(store: Store) -> None:
    with store.transaction() as txn:
        txn.writer("s/a").write(b"x", time=1)
        txn.commit(note_time=10, writer="one")
        txn.commit(note_time=10, writer="one")
    assert time_of(store) == 10
    assert len(times_behind(store, store.cuts.head("s/a"))) == 1


def test_a_transaction_that_is_aborted_notes_nothing(store: Store) -> None:
    txn = store.transaction()
    txn.writer("s/a").write(b"x", time=1)
    txn.abort()
    with pytest.raises(TransactionAborted):
        txn.commit(note_time=10)
    assert time_of(store) is None


def test_few_streams_times_are_kept_in_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATERMARK_STREAMS_MAX", 2)
    for number in range(5):
        store.streams.create(f"s/{number}")
        with store.writer(f"s/{number}") as writer:
            writer.note_time(number)
            assert time_of(store, f"s/{number}") == number
    assert len(store.watermarks._known) == 2
    assert [time_of(store, f"s/{number}") for number in range(5)] == [0, 1, 2, 3, 4]
