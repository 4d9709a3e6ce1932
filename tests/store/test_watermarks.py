"""Watermarks: what writers note, what readers may rely on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import InvalidArgument, NotFound, StreamNotFound
from anabranch.model.times import to_micros
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, sound, store_at
from tests.waiting import until


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
    store.streams.create("s/a", scaling=2)


def time_of(store: Store) -> int | None:
    mark = store.watermark("s/a")
    return None if mark is None else mark.time_us


def write(writer: ab.Writer, *times: int) -> None:
    for time in times:
        writer.write(b"%d" % time, key=str(time), time=time)


def times_behind(store: Store, cut: ab.StreamCut) -> list[int]:
    with store.reader("s/a", start=cut) as reader:
        return sorted(event.time_us or 0 for event in reader)


def test_without_notes_nothing_is_known(anywhere: Store) -> None:
    assert anywhere.watermark("s/a") is None
    with anywhere.reader("s/a") as reader:
        assert reader.time_window() == ab.TimeWindow(None, None)
    assert [str(info.name) for info in anywhere.streams.list(internal=True)] == ["s/a"]  # asking makes nothing


def test_nothing_older_lies_behind_the_watermarks_cut(anywhere: Store) -> None:
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
            mark = anywhere.watermark("s/a")
            write(one, base + 50)
            one.flush()
            assert mark is not None
            assert all(time >= mark.time_us for time in times_behind(anywhere, mark.cut))
            assert mark.time_us >= base - 10  # the least of the two
    assert sound(anywhere)


def test_a_reader_knows_its_window_at_each_position(anywhere: Store) -> None:
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


def test_a_window_far_back_is_known_too(store: Store) -> None:
    with store.writer("s/a") as writer:
        for time in range(1, 40):
            write(writer, time)
            writer.note_time(time)
        with store.reader("s/a", start=ab.HEAD) as behind, store.reader("s/a", start=ab.TAIL) as ahead:
            assert ahead.time_window().lower_us == 39
            assert behind.time_window() == ab.TimeWindow(None, to_micros(1))
            assert ahead.time_window().lower_us == 39


def test_several_writers_hold_each_other_up_until_they_end(store: Store) -> None:
    fast, slow = store.writer("s/a"), store.writer("s/a")
    slow.note_time(10)
    fast.note_time(20)
    assert time_of(store) == 10
    fast.note_time(30)
    assert time_of(store) == 10
    slow.close()
    assert time_of(store) == 30


def test_a_writer_that_fell_silent_is_waited_for_no_longer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_writer_notes_no_time_before_its_last(store: Store) -> None:
    with store.writer("s/a") as writer:
        writer.note_time(10)
        with pytest.raises(InvalidArgument, match="can't go back"):
            writer.note_time(9)
        writer.note_time(10)


def test_times_are_noted_by_themselves(anywhere: Store) -> None:
    with anywhere.writer("s/a", note_time_s=0.02) as writer:
        writer.write(b"x")
        before = anywhere.runtime.clock.now()
        until(lambda: (time_of(anywhere) or 0) > before)
        mark = anywhere.watermark("s/a")
        assert mark is not None
        writer.write(b"y")
        writer.flush()
        assert all(time >= mark.time_us for time in times_behind(anywhere, mark.cut))
    with pytest.raises(InvalidArgument):
        anywhere.writer("s/a", note_time_s=0)


def test_a_group_knows_the_window_of_what_it_accepted(store: Store) -> None:
    store.streams.create("s/b")
    group = store.reader_group("s/g", streams=["s/a", "s/b"])
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
    mark = store.watermark("s/b")
    assert mark is not None
    assert mark.time_us == 20
    with pytest.raises(StreamNotFound):
        store.watermark("s/nowhere")


def test_what_was_truncated_counts_as_read(store: Store) -> None:
    with store.writer("s/a") as writer:
        for time in (1, 2, 3):
            write(writer, time)
            writer.note_time(time)
        store.streams.scale("s/a", 3)
        store.streams.truncate("s/a", store.streams.tail("s/a"))
        with store.reader("s/a") as reader:
            assert reader.time_window().lower_us == 3


def test_old_windows_are_let_go_and_the_watermark_stays(store: Store) -> None:
    with store.writer("s/a") as writer:
        for time in range(1, 10):
            write(writer, time)
            writer.note_time(time)
        (name,) = [info.name for info in store.streams.list(internal=True) if info.name.internal]
        tail = store.streams.tail(name).as_dict()
        cut = ab.StreamCut.of(store.streams.get(name).id, {segment: at - 1 for segment, at in tail.items()})
        store.streams.truncate(name, cut)
        assert time_of(store) == 9
        with store.reader("s/a") as reader:
            assert reader.time_window() == ab.TimeWindow(None, to_micros(9))


def test_a_writer_whose_stream_is_gone_ends_all_the_same(store: Store) -> None:
    writer = store.writer("s/a")
    writer.note_time(1)
    store.streams.delete("s/a")
    writer.close()
    with pytest.raises(StreamNotFound):
        store.watermark("s/a")
