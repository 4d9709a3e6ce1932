"""Listeners: each is told the present state and then what happens, whoever did it, until it is closed."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import ReaderNotInGroup
from anabranch.store import Store
from tests.store.helpers import sound
from tests.waiting import PATIENCE_S, until, until_ended


def write(store: Store, *bodies: bytes, stream: str = "s/a") -> None:
    with store.writer(stream) as writer:
        for body in bodies:
            writer.write(body, key=body.decode())


def test_a_listener_gets_the_current_state_and_then_each_change(anywhere: Store) -> None:
    told: list[ab.Notification] = []
    anywhere.streams.scale("s/a", 3)
    anywhere.notifications.listen(told.append, "s/a")
    until(lambda: told)
    anywhere.streams.scale("s/a", 4)
    anywhere.streams.truncate("s/a", anywhere.cuts.tail("s/a"))
    until(lambda: len(told) == 3)
    assert [(each.kind, each.segments) for each in told] == [("present", 3), ("scaled", 4), ("truncated", None)]
    assert told[0].detail["epoch"] == 1
    assert told[0].id < told[1].id < told[2].id


def test_a_split_and_a_merge_between_two_polls_are_two_notifications(anywhere: Store) -> None:
    told: list[ab.Notification] = []
    busy = threading.Event()

    def slow(each: ab.Notification) -> None:
        busy.wait(60)
        told.append(each)

    group = anywhere.groups.open("s/g", streams=["s/a"])
    group.on_segments(slow)
    anywhere.streams.scale("s/a", split="0.0")
    anywhere.streams.scale("s/a", 2)
    busy.set()
    until(lambda: len(told) == 3)
    assert [each.segments for each in told] == [2, 3, 2]


def test_the_number_of_segments_is_that_of_all_streams_of_the_group(store: Store) -> None:
    told: list[ab.Notification] = []
    store.streams.create("s/b", scaling=3)
    store.streams.create("s/c")
    group = store.groups.open("s/g", streams=["s/a", "s/b"])
    group.on_segments(told.append)
    store.streams.scale("s/b", 1)
    store.streams.scale("s/c", 8)  # none of the group's
    store.streams.append("s/c", "s/a")
    with group.reader("r"):
        store.streams.scale("s/a", 4)
        until(lambda: len(told) == 4)
    assert [(each.segments, each.readers) for each in told] == [(5, 0), (3, 0), (3, 0), (5, 1)]
    assert [each.stream for each in told] == [None, "s/b", "s/a", "s/a"]


def test_joining_and_leaving_readers_are_notified(anywhere: Store) -> None:
    told: list[ab.Notification] = []
    group = anywhere.groups.open("s/g", streams=["s/a"])
    group.on_readers(told.append)
    with group.reader("r1"), group.reader("r2"):
        group.reader_offline("r2")
        group.reader_offline("r2")  # twice is harmless, and told once
    until(lambda: len(told) == 5)
    changes = [(each.readers, each.detail["joined"], each.detail["left"]) for each in told]
    assert changes == [(0, [], []), (1, ["r1"], []), (2, ["r2"], []), (1, [], ["r2"]), (0, [], ["r1"])]
    assert [each.detail["names"] for each in told] == [[], ["r1"], ["r1", "r2"], ["r1"], []]


def test_a_reader_that_is_taken_over_has_left_and_joined(store: Store) -> None:
    told: list[ab.Notification] = []
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r"):
        group.on_readers(told.append)
        with group.reader("r"):
            until(lambda: len(told) == 2)
    assert (told[1].readers, told[1].detail["joined"], told[1].detail["left"]) == (1, ["r"], ["r"])


def test_a_reader_whose_lease_expired_is_notified_as_left(store: Store) -> None:
    told: list[ab.Notification] = []
    group = store.groups.open("s/g", streams=["s/a"], lease_s=2.0)
    silent, other = group.reader("silent"), group.reader("other")
    with silent._lock:  # so that it gives no sign of life
        group.on_readers(told.append)
        until(lambda: len(told) == 2)
    assert told[0].detail["names"] == ["other", "silent"]
    assert told[1].detail["left"] == ["silent"]
    other.close()
    with pytest.raises(ReaderNotInGroup):
        silent.read()


def test_the_end_of_data_is_notified_once_with_zero_segments(anywhere: Store) -> None:
    segments: list[ab.Notification] = []
    ends: list[ab.Notification] = []
    write(anywhere, *[b"%d" % number for number in range(20)])
    group = anywhere.groups.open("s/g", streams=["s/a"])
    group.on_segments(segments.append)
    group.on_end_of_data(ends.append)
    bodies: list[bytes] = []

    def read(reader: ab.GroupReader) -> None:
        bodies.extend([event.body for event in reader])

    with group.reader("r1") as one, group.reader("r2") as other:
        anywhere.streams.seal("s/a")
        # Side by side: neither comes to the end while a segment that the other has got is not read.
        threads = [threading.Thread(target=read, args=(reader,)) for reader in (one, other)]
        for thread in threads:
            thread.start()
        until_ended(*threads)
    assert len(bodies) == 20
    until(lambda: ends and segments and segments[-1].segments == 0)
    with group.reader("r3") as late:
        assert list(late) == []
    told: list[ab.Notification] = []
    group.on_readers(told.append)
    until(lambda: told)
    assert [each.segments for each in segments] == [2, 0]
    assert len(ends) == 1
    assert len([each for each in anywhere.notifications.read() if each.kind == "end of data"]) == 1


def test_a_listener_after_the_end_is_notified_at_once(store: Store) -> None:
    ends: list[ab.Notification] = []
    group = store.groups.open("s/g", streams=["s/a"], end=ab.TAIL)
    with group.reader("r") as reader:
        assert list(reader) == []
    group.on_end_of_data(ends.append)
    until(lambda: ends)
    assert (ends[0].segments, ends[0].readers) == (0, 0)


def test_after_a_reset_there_may_be_another_end(store: Store) -> None:
    told: list[ab.Notification] = []
    ends: list[ab.Notification] = []
    write(store, b"x")
    store.streams.seal("s/a")
    group = store.groups.open("s/g", streams=["s/a"])
    group.on_segments(told.append)
    group.on_end_of_data(ends.append)
    for _ in range(2):
        with group.reader("r") as reader:
            assert [event.body for event in reader] == [b"x"]
        group.rewind()
    until(lambda: len(told) == 5 and len(ends) == 2)  # each listener goes at its own pace
    assert [each.segments for each in told] == [2, 0, 2, 0, 2]


def test_a_group_is_notified_of_scaling_and_truncation(store: Store) -> None:
    scaled: list[ab.Notification] = []
    truncated: list[ab.Notification] = []
    write(store, b"x", b"y")
    group = store.groups.open("s/g", streams=["s/a"])
    group.on_scaling(scaled.append)
    group.on_truncation(truncated.append)
    store.streams.scale("s/a", 4)
    tail = store.cuts.tail("s/a")
    store.streams.truncate("s/a", tail)
    until(lambda: scaled and truncated)
    assert (scaled[0].segments, scaled[0].detail["epoch"]) == (4, 1)
    assert (truncated[0].stream, truncated[0].detail["head"], truncated[0].segments) == ("s/a", str(tail), 4)


def test_an_error_of_a_listener_is_reported_and_affects_no_other(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[ab.Notification] = []

    def broken(each: ab.Notification) -> None:
        raise ValueError("no")

    with caplog.at_level(logging.ERROR, "anabranch.notifications"):
        failing = store.notifications.listen(broken, "s/a")
        store.notifications.listen(told.append, "s/a")
        store.streams.scale("s/a", 3)
        until(lambda: len(told) == 2 and failing.failures == 2)
    assert isinstance(failing.failure, ValueError)
    assert "a listener's handler raised" in caplog.text


def test_a_listener_that_does_not_return_delays_no_other(store: Store) -> None:
    told: list[ab.Notification] = []
    stuck = threading.Event()
    store.notifications.listen(lambda each: stuck.wait(240), "s/a")
    store.notifications.listen(told.append, "s/a")
    store.streams.scale("s/a", 3)
    until(lambda: len(told) == 2)
    stuck.set()


def test_nothing_is_delivered_after_unsubscribing(store: Store) -> None:
    told: list[ab.Notification] = []
    others: list[ab.Notification] = []
    unsubscribe = store.notifications.listen(told.append, "s/a")
    store.notifications.listen(others.append, "s/a")
    until(lambda: told and others)
    unsubscribe()
    unsubscribe()
    store.streams.scale("s/a", 3)
    until(lambda: len(others) == 2)
    assert len(told) == 1


def test_a_listener_may_unsubscribe_itself(store: Store) -> None:
    told: list[ab.Notification] = []
    others: list[ab.Notification] = []

    def once(each: ab.Notification) -> None:
        told.append(each)
        if each.kind == "scaled":
            unsubscribe()

    unsubscribe = store.notifications.listen(once, "s/a")
    store.notifications.listen(others.append, "s/a")
    until(lambda: told)
    store.streams.scale("s/a", 3)
    until(lambda: len(told) == 2)  # each listener goes at its own pace
    store.streams.scale("s/a", 4)
    until(lambda: len(others) == 3)
    assert [each.segments for each in told] == [2, 3]


def test_closing_the_store_ends_listeners_and_followers(tmp_path: Path) -> None:
    store = ab.connect(tmp_path / "store", create=True)
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2)
    store.notifications.listen(lambda each: None, "s/a")
    follower = store.notifications.read(follow=True)
    found: list[ab.Notification] = []
    thread = threading.Thread(target=lambda: found.extend(follower), daemon=True)
    thread.start()
    until(lambda: found)
    store.close()
    until_ended(thread)


def test_a_follower_that_is_closed_while_it_polls_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.notifications.read(follow=True) as follower:
        reader = follower._reader
        read = reader.read

        def closed_meanwhile() -> object:
            follower.close()
            return read()

        monkeypatch.setattr(reader, "read", closed_meanwhile)
        assert list(follower) == []


def test_a_listener_may_close_the_store(tmp_path: Path) -> None:
    store = ab.connect(tmp_path / "store", create=True)
    store.scopes.create("s")
    store.streams.create("s/a", scaling=2)
    closed = threading.Event()

    def close_at_the_end(each: ab.Notification) -> None:
        if each.kind == "sealed":
            store.close()
            closed.set()

    told: list[ab.Notification] = []
    store.notifications.listen(told.append, "s/a")
    store.notifications.listen(close_at_the_end, "s/a")
    until(lambda: told)
    store.streams.seal("s/a")
    assert closed.wait(PATIENCE_S)
    store.close()
    with ab.connect(tmp_path / "store", create=True) as again:
        assert sound(again)
