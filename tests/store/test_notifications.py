"""Notifications: what happened is told, once, in order, to everybody who listens, whoever did it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch import limits
from anabranch.errors import Conflict, InvalidArgument, ReaderNotInGroup, StreamNotFound, StreamSealed, Truncated
from anabranch.readers.notifications.journal import NAME
from anabranch.readers.notifications.listen import Subscription
from anabranch.store import Store
from tests.store.helpers import ANYWHERE, sound, store_at
from tests.waiting import PATIENCE_S, until, until_ended


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


def write(store: Store, *bodies: bytes, stream: str = "s/a") -> None:
    with store.writer(stream) as writer:
        for body in bodies:
            writer.write(body, key=body.decode())


# what is told


def keep(store: Store) -> None:
    with store.streams.ephemeral("s/b"):
        store.streams.keep("s/b")


def take_back(store: Store) -> None:
    store.streams.alias("s/a", "s/other")
    store.streams.unalias("s/other")


class Told(NamedTuple):
    act: Callable[[Store], object]
    kind: str
    stream: str | None
    segments: int | None
    detail: dict[str, Any]


OPERATIONS = {
    "create": Told(lambda s: s.streams.create("s/b", scaling=3), "created", "s/b", 3, {"name": "s/b"}),
    "split": Told(
        lambda s: s.streams.scale("s/a", split="0.0", into=3),
        "scaled",
        "s/a",
        4,
        {"epoch": 1, "sealed": ["0.0"], "created": ["1.2", "1.3", "1.4"]},
    ),
    "merge": Told(
        lambda s: s.streams.scale("s/a", merge=["0.0", "0.1"]), "scaled", "s/a", 1, {"epoch": 1, "created": ["1.2"]}
    ),
    "scale by hand": Told(lambda s: s.streams.scale("s/a", 5), "scaled", "s/a", 5, {"sealed": ["0.0", "0.1"]}),
    "seal": Told(lambda s: s.streams.seal("s/a"), "sealed", "s/a", None, {"epoch": 0}),
    "truncate": Told(
        lambda s: s.streams.truncate("s/a", s.streams.tail("s/a")), "truncated", "s/a", None, {"head": ...}
    ),
    "delete": Told(lambda s: s.streams.delete("s/a"), "deleted", "s/a", None, {"name": "s/a"}),
    "rename": Told(lambda s: s.streams.rename("s/a", "s/z"), "renamed", "s/z", None, {"from": "s/a", "to": "s/z"}),
    "fence": Told(lambda s: s.streams.fence("s/a", 7), "fenced", "s/a", None, {"fence": 7}),
    "tag": Told(lambda s: s.streams.tag("s/a", {"x": "y"}), "tagged", "s/a", None, {"tags": {"x": "y"}}),
    "copy": Told(lambda s: s.streams.copy("s/a", "s/b"), "copied", "s/b", None, {"name": "s/b"}),
    "append": Told(lambda s: s.streams.append("s/a", "s/a"), "appended", "s/a", 2, {"epoch": ...}),
    "stitch": Told(
        lambda s: s.streams.stitch(["s/a"], into="s/b", keep_sources=True), "stitched", "s/b", None, {"kept": True}
    ),
    "alias": Told(lambda s: s.streams.alias("s/a", "s/other"), "alias added", "s/a", None, {"alias": "s/other"}),
    "retention": Told(
        lambda s: s.streams.retention("s/a", ab.RetainFor("7d")),
        "retention",
        "s/a",
        None,
        {"age_us": 7 * 86400 * 10**6},
    ),
    "scaling": Told(lambda s: s.streams.scaling("s/a", ab.ByEventRate(100)), "scaling", "s/a", None, {"target": 100}),
    "take an alias back": Told(
        lambda s: take_back(s),
        "alias removed",
        "s/a",
        None,
        {"alias": "s/other"},
    ),
    "keep": Told(lambda s: keep(s), "kept", "s/b", None, {"name": "s/b"}),
    "create scope": Told(lambda s: s.streams.create_scope("t"), "scope created", None, None, {"scope": "t"}),
    "move scope": Told(lambda s: s.streams.move_scope("s", "t"), "scope renamed", None, None, {"from": "s", "to": "t"}),
    "delete scope": Told(
        lambda s: s.streams.delete_scope("s", recursive=True), "scope deleted", None, None, {"scope": "s"}
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_is_told_with_what_it_did(store: Store, operation: str) -> None:
    before = list(store.notifications())
    told = OPERATIONS[operation]
    told.act(store)
    (found,) = [each for each in store.notifications(after=before[-1].id) if each.kind == told.kind]
    assert (found.stream, found.segments, found.group) == (told.stream, told.segments, None)
    for name, value in told.detail.items():
        assert name in found.detail
        assert value is ... or found.detail[name] == value, name


def test_a_typed_stream_that_evolves_is_told(store: Store) -> None:
    columns = pa.schema([("a", pa.int64())])
    store.streams.create("s/typed", schema=columns)
    store.streams.evolve("s/typed", columns.append(pa.field("b", pa.string())))
    last = list(store.notifications("s/typed"))[-1]
    assert (last.kind, list(last.detail["columns"])) == ("evolved", ["b"])


def test_what_changed_before_anybody_asked_is_told_too(anywhere: Store) -> None:
    anywhere.streams.scale("s/a", 3)
    kinds = [(each.kind, each.segments) for each in anywhere.notifications("s/a")]
    assert kinds == [("created", 2), ("scaled", 3)]


def test_ids_rise_and_nothing_comes_twice_however_often_it_is_read(anywhere: Store) -> None:
    for segments in (3, 1, 4):
        anywhere.streams.scale("s/a", segments)
        list(anywhere.notifications())
    ids = [each.id for each in anywhere.notifications()]
    assert ids == sorted(set(ids))
    assert [each.segments for each in anywhere.notifications("s/a")] == [2, 3, 1, 4]
    assert sound(anywhere)


def test_reading_goes_on_after_an_id(store: Store) -> None:
    store.streams.scale("s/a", 3)
    first = next(iter(store.notifications("s/a")))
    assert [each.kind for each in store.notifications("s/a", after=first.id)] == ["scaled"]


def test_the_stores_own_streams_are_not_spoken_of(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r"):
        pass
    store.synchronizer("s/x", initial=1).compact()
    names = {each.stream for each in store.notifications()} - {None}
    assert names == {"s/a"}


def test_a_renamed_stream_is_followed_by_its_id(store: Store) -> None:
    told = store.notifications("s/a", follow=True)
    store.streams.rename("s/a", "s/b")
    store.streams.scale("s/b", 3)
    assert [told.next(60).kind for _ in range(3)] == ["created", "renamed", "scaled"]  # type: ignore[union-attr]


def test_a_stream_that_is_not_there_is_one_clear_error(store: Store) -> None:
    with pytest.raises(StreamNotFound):
        store.notifications("s/nowhere")
    with pytest.raises(StreamNotFound):
        store.on_notification(print, "s/nowhere")


# the stream that they are kept on


def test_notifications_are_a_stream_like_any_other(store: Store) -> None:
    store.streams.scale("s/a", 3)
    store.notifications()
    with store.reader("_store/notifications", columns=["kind", "stream", "segments"]) as reader:
        rows = [event.body for event in reader]
    assert {"kind": "scaled", "stream": "s/a", "segments": 3} in rows
    assert str(NAME) not in [str(info.name) for info in store.streams.list()]


def test_it_has_a_retention_of_its_own(store: Store) -> None:
    store.notifications()
    policy = store.streams.retention(NAME)
    assert policy is not None
    assert policy.age_us == limits.NOTIFICATIONS_KEPT_US


def test_who_was_overtaken_by_the_retention_is_told_so(store: Store) -> None:
    told = store.notifications(start=ab.HEAD)
    store.streams.truncate(NAME, store.streams.tail(NAME))
    with pytest.raises(Truncated):
        list(told)


def test_a_collection_loses_no_change(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    list(store.notifications())
    store.streams.scale("s/a", 3)
    monkeypatch.setattr(limits, "CHANGES_KEPT_US", -60_000_000)  # the outbox forgets at once
    store.collect()
    with store.catalog.reading() as reading:
        assert reading.changes(0, 10) == []
    store.streams.scale("s/a", 4)
    assert [each.segments for each in store.notifications("s/a")] == [2, 3, 4]


def test_who_deletes_it_gets_another_from_there_on(store: Store) -> None:
    told: list[ab.Notification] = []
    list(store.notifications())
    store.streams.delete(NAME)
    store.streams.scale("s/a", 3)
    store.on_notification(told.append, "s/a")
    store.streams.scale("s/a", 4)
    until(lambda: len(told) == 2)
    assert [(each.kind, each.segments) for each in told] == [("present", 3), ("scaled", 4)]


def test_a_sealed_one_is_one_clear_error(store: Store) -> None:
    list(store.notifications())
    store.streams.seal(NAME)
    store.streams.scale("s/a", 3)
    with pytest.raises(StreamSealed):
        store.notifications()


def test_two_that_note_down_at_once_do_it_once(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "store") as one, ab.connect(tmp_path / "store") as other:
        one.streams.create_scope("s")
        prepare(one)
        done = threading.Event()

        def note(store: Store) -> None:
            while not done.is_set():
                store._journal.advance()

        threads = [threading.Thread(target=note, args=(store,)) for store in (one, other, other)]
        for thread in threads:
            thread.start()
        for number in range(60):
            one.streams.tag("s/a", {"n": str(number)})
        done.set()
        until_ended(*threads)
        numbers = [each.detail["tags"]["n"] for each in one.notifications("s/a") if each.kind == "tagged"]
        assert numbers == [str(number) for number in range(60)]
        assert sound(one)


# listeners


def test_a_listener_gets_the_present_state_and_then_each_change(anywhere: Store) -> None:
    told: list[ab.Notification] = []
    anywhere.streams.scale("s/a", 3)
    anywhere.on_notification(told.append, "s/a")
    until(lambda: told)
    anywhere.streams.scale("s/a", 4)
    anywhere.streams.truncate("s/a", anywhere.streams.tail("s/a"))
    until(lambda: len(told) == 3)
    assert [(each.kind, each.segments) for each in told] == [("present", 3), ("scaled", 4), ("truncated", None)]
    assert told[0].detail["epoch"] == 1
    assert told[0].id < told[1].id < told[2].id


def test_a_split_and_a_merge_between_two_looks_are_two_notifications(anywhere: Store) -> None:
    told: list[ab.Notification] = []
    busy = threading.Event()

    def slow(each: ab.Notification) -> None:
        busy.wait(60)
        told.append(each)

    group = anywhere.reader_group("s/g", streams=["s/a"])
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
    group = store.reader_group("s/g", streams=["s/a", "s/b"])
    group.on_segments(told.append)
    store.streams.scale("s/b", 1)
    store.streams.scale("s/c", 8)  # none of the group's
    store.streams.append("s/c", "s/a")
    with group.reader("r"):
        store.streams.scale("s/a", 4)
        until(lambda: len(told) == 4)
    assert [(each.segments, each.readers) for each in told] == [(5, 0), (3, 0), (3, 0), (5, 1)]
    assert [each.stream for each in told] == [None, "s/b", "s/a", "s/a"]


def test_readers_that_come_and_go_are_told(anywhere: Store) -> None:
    told: list[ab.Notification] = []
    group = anywhere.reader_group("s/g", streams=["s/a"])
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
    group = store.reader_group("s/g", streams=["s/a"])
    with group.reader("r"):
        group.on_readers(told.append)
        with group.reader("r"):
            until(lambda: len(told) == 2)
    assert (told[1].readers, told[1].detail["joined"], told[1].detail["left"]) == (1, ["r"], ["r"])


def test_a_reader_that_is_silent_for_its_lease_has_left(store: Store) -> None:
    told: list[ab.Notification] = []
    group = store.reader_group("s/g", streams=["s/a"], lease_s=2.0)
    silent, other = group.reader("silent"), group.reader("other")
    with silent._busy:  # so that it gives no sign of life
        group.on_readers(told.append)
        until(lambda: len(told) == 2)
    assert told[0].detail["names"] == ["other", "silent"]
    assert told[1].detail["left"] == ["silent"]
    other.close()
    with pytest.raises(ReaderNotInGroup):
        silent.read()


def test_the_end_of_data_is_told_once_and_leaves_no_segment(anywhere: Store) -> None:
    segments: list[ab.Notification] = []
    ends: list[ab.Notification] = []
    write(anywhere, *[b"%d" % number for number in range(20)])
    group = anywhere.reader_group("s/g", streams=["s/a"])
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
    assert len([each for each in anywhere.notifications() if each.kind == "end of data"]) == 1


def test_who_listens_after_the_end_is_told_of_it_at_once(store: Store) -> None:
    ends: list[ab.Notification] = []
    group = store.reader_group("s/g", streams=["s/a"], end=ab.TAIL)
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
    group = store.reader_group("s/g", streams=["s/a"])
    group.on_segments(told.append)
    group.on_end_of_data(ends.append)
    for _ in range(2):
        with group.reader("r") as reader:
            assert [event.body for event in reader] == [b"x"]
        group.rewind()
    until(lambda: len(told) == 5 and len(ends) == 2)  # each listener goes at its own pace
    assert [each.segments for each in told] == [2, 0, 2, 0, 2]


def test_scaling_and_truncation_are_told_to_a_group(store: Store) -> None:
    scaled: list[ab.Notification] = []
    truncated: list[ab.Notification] = []
    write(store, b"x", b"y")
    group = store.reader_group("s/g", streams=["s/a"])
    group.on_scaling(scaled.append)
    group.on_truncation(truncated.append)
    store.streams.scale("s/a", 4)
    tail = store.streams.tail("s/a")
    store.streams.truncate("s/a", tail)
    until(lambda: scaled and truncated)
    assert (scaled[0].segments, scaled[0].detail["epoch"]) == (4, 1)
    assert (truncated[0].stream, truncated[0].detail["head"], truncated[0].segments) == ("s/a", str(tail), 4)


def test_a_listener_that_raises_harms_no_other_and_is_reported(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    told: list[ab.Notification] = []

    def broken(each: ab.Notification) -> None:
        raise ValueError("no")

    with caplog.at_level(logging.ERROR, "anabranch.notifications"):
        failing = store.on_notification(broken, "s/a")
        store.on_notification(told.append, "s/a")
        store.streams.scale("s/a", 3)
        until(lambda: len(told) == 2 and failing.failures == 2)
    assert isinstance(failing.failure, ValueError)
    assert "a listener raised" in caplog.text


def test_a_listener_that_does_not_return_delays_no_other(store: Store) -> None:
    told: list[ab.Notification] = []
    stuck = threading.Event()
    store.on_notification(lambda each: stuck.wait(240), "s/a")
    store.on_notification(told.append, "s/a")
    store.streams.scale("s/a", 3)
    until(lambda: len(told) == 2)
    stuck.set()


def test_who_unsubscribes_is_told_nothing_more(store: Store) -> None:
    told: list[ab.Notification] = []
    others: list[ab.Notification] = []
    unsubscribe = store.on_notification(told.append, "s/a")
    store.on_notification(others.append, "s/a")
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

    unsubscribe = store.on_notification(once, "s/a")
    store.on_notification(others.append, "s/a")
    until(lambda: told)
    store.streams.scale("s/a", 3)
    until(lambda: len(told) == 2)  # each listener goes at its own pace
    store.streams.scale("s/a", 4)
    until(lambda: len(others) == 3)
    assert [each.segments for each in told] == [2, 3]


def test_closing_the_store_ends_listeners_and_followers(tmp_path: Path) -> None:
    store = ab.connect(tmp_path / "store")
    store.streams.create_scope("s")
    prepare(store)
    store.on_notification(lambda each: None, "s/a")
    follower = store.notifications(follow=True)
    found: list[ab.Notification] = []
    thread = threading.Thread(target=lambda: found.extend(follower), daemon=True)
    thread.start()
    until(lambda: found)
    store.close()
    until_ended(thread)


# listeners with a name


def scales(told: list[ab.Notification]) -> list[int | None]:
    return [each.segments for each in told if each.kind == "scaled"]


def test_a_named_listener_goes_on_where_it_stopped(tmp_path: Path) -> None:
    told: list[ab.Notification] = []
    with store_at("sqlite", tmp_path) as store:
        prepare(store)
        store.streams.create("s/other")
        stop = store.on_notification(told.append, "s/a", name="dash")
        store.streams.scale("s/a", 3)
        store.streams.scale("s/other", 7)
        until(lambda: stop.delivered == 2)  # and its place is noted
        assert scales(told) == [3]
        stop.close()
        store.streams.scale("s/a", 4)  # nobody listens
    with ab.connect(tmp_path / "store") as store:
        store.streams.scale("s/a", 5)
        store.on_notification(told.append, "s/a", name="dash")
        until(lambda: scales(told) == [3, 4, 5])
        store.streams.scale("s/a", 6)
        until(lambda: scales(told) == [3, 4, 5, 6])
    assert [each.kind for each in told] == ["present", "scaled", "scaled", "scaled", "scaled"]
    assert len({each.id for each in told}) == len(told)


def test_a_named_listener_to_all_streams_begins_where_it_was_asked_to(anywhere: Store) -> None:
    anywhere.notifications()
    early: list[ab.Notification] = []
    late: list[ab.Notification] = []
    anywhere.on_notification(early.append, name="from the head", start=ab.HEAD)
    anywhere.on_notification(late.append, name="from now on")
    anywhere.streams.scale("s/a", 3)
    until(lambda: late and [each.kind for each in early][-1:] == ["scaled"])
    assert [each.kind for each in late] == ["scaled"]
    assert "created" in [each.kind for each in early]


def test_who_takes_a_name_over_goes_on_and_the_former_ends(store: Store) -> None:
    first: list[ab.Notification] = []
    second: list[ab.Notification] = []
    former = store.on_notification(first.append, "s/a", name="dash")
    until(lambda: first)
    store.on_notification(second.append, "s/a", name="dash")
    store.streams.scale("s/a", 3)
    until(lambda: scales(second) == [3])
    until(lambda: isinstance(former.failure, Conflict))
    store.streams.scale("s/a", 4)
    until(lambda: scales(second) == [3, 4])
    assert 4 not in scales(first)


def test_what_a_named_listener_missed_for_good_is_said(store: Store) -> None:
    told: list[ab.Notification] = []
    stop = store.on_notification(told.append, "s/a", name="dash")
    until(lambda: stop.delivered)
    stop.close()
    store.streams.scale("s/a", 3)
    list(store.notifications())  # notes it down
    store.streams.truncate(NAME, store.streams.tail(NAME))
    again = store.on_notification(told.append, "s/a", name="dash")
    assert isinstance(again.failure, Truncated)
    store.streams.scale("s/a", 4)
    until(lambda: scales(told) == [4])


def test_a_name_listens_to_one_thing_until_it_is_forgotten(anywhere: Store) -> None:
    anywhere.streams.create("s/b")
    told: list[ab.Notification] = []
    stop = anywhere.on_notification(told.append, "s/a", name="dash")
    until(lambda: told)
    stop.close()
    with pytest.raises(InvalidArgument, match="listener 'dash' listens to something else"):
        anywhere.on_notification(told.append, "s/b", name="dash")
    anywhere.forget_listener("dash")
    anywhere.forget_listener("nobody")
    anywhere.on_notification(told.append, "s/b", name="dash")
    until(lambda: [each.stream for each in told] == ["s/a", "s/b"])
    for wrong in ("", "x" * 200):
        with pytest.raises(InvalidArgument, match="a listener's name is text"):
            anywhere.on_notification(told.append, name=wrong)


def test_a_named_listener_goes_on_behind_a_notification_stream_that_was_deleted(store: Store) -> None:
    told: list[ab.Notification] = []
    stop = store.on_notification(told.append, "s/a", name="dash")
    store.streams.scale("s/a", 3)
    until(lambda: stop.delivered == 2)
    assert scales(told) == [3]
    stop.close()
    store.streams.delete(NAME)
    store.on_notification(told.append, "s/a", name="dash")
    store.streams.scale("s/a", 4)
    until(lambda: scales(told) == [3, 4])


def test_a_groups_named_listeners_go_on_with_what_was_known_where_they_stopped(tmp_path: Path) -> None:
    kinds = ("segments", "readers", "scaled", "truncated", "end of data")
    told: dict[str, list[ab.Notification]] = {kind: [] for kind in kinds}

    def listen(group: ab.ReaderGroup) -> list[Subscription]:
        return [
            group.on_segments(told["segments"].append, name="segments"),
            group.on_readers(told["readers"].append, name="readers"),
            group.on_scaling(told["scaled"].append, name="scalings"),
            group.on_truncation(told["truncated"].append, name="truncations"),
            group.on_end_of_data(told["end of data"].append, name="end"),
        ]

    with store_at("sqlite", tmp_path) as store:
        prepare(store)
        store.streams.create("s/b")
        group = store.reader_group("s/g", streams=["s/a", "s/b"])
        listeners = listen(group)
        store.streams.scale("s/a", 3)
        until(lambda: [each.delivered for each in listeners] == [2, 1, 1, 0, 0])  # and their places are noted
        for each in listeners:
            each.close()
        store.streams.scale("s/b", 2)  # nobody listens
        store.streams.truncate("s/b", store.streams.tail("s/b"))
        with group.reader("r"):
            store.streams.scale("s/a", 4)
    with ab.connect(tmp_path / "store") as store:
        for name in ("s/a", "s/b"):
            store.streams.seal(name)
        group = store.reader_group("s/g")
        with group.reader("r") as reader:
            assert list(reader) == []
        listen(group)
        until(lambda: [len(each) for each in told.values()] == [5, 5, 3, 1, 1])
        with pytest.raises(InvalidArgument, match="listener 'segments' listens to something else"):
            group.on_readers(print, name="segments")
        with pytest.raises(InvalidArgument, match="listener 'segments' listens to something else"):
            store.on_notification(print, name="segments")
    assert [(each.segments, each.readers) for each in told["segments"]] == [(3, 0), (4, 0), (5, 0), (6, 1), (0, 1)]
    assert [each.detail["names"] for each in told["readers"]] == [[], ["r"], [], ["r"], []]
    assert [(each.stream, each.segments, each.readers) for each in told["scaled"]] == [
        ("s/a", 4, 0),
        ("s/b", 5, 0),
        ("s/a", 6, 1),
    ]
    for kind, found in told.items():
        assert {each.kind for each in found} == {kind}
        assert len({each.id for each in found}) == len(found)


@pytest.mark.parametrize("gap", ["truncated", "deleted", "another group"])
def test_a_groups_named_listener_begins_anew_where_the_present_can_not_be_worked_out(store: Store, gap: str) -> None:
    told: list[ab.Notification] = []
    store.streams.create("s/b", scaling=7)
    group = store.reader_group("s/g", streams=["s/a"])
    stop = group.on_segments(told.append, name="dash")
    until(lambda: stop.delivered)
    stop.close()
    store.streams.scale("s/a", 3)
    list(store.notifications())  # notes it down
    match gap:
        case "truncated":
            store.streams.truncate(NAME, store.streams.tail(NAME))
        case "deleted":
            store.streams.delete(NAME)
        case "another group":
            group.delete()
            group = store.reader_group("s/g", streams=["s/b"])
    again = group.on_segments(told.append, name="dash")
    store.streams.scale(group.streams[0], 4)
    until(lambda: len(told) == 3)
    assert [each.segments for each in told] == [2, 7 if gap == "another group" else 3, 4]
    assert isinstance(again.failure, Truncated) == (gap == "truncated")


def test_a_groups_named_listener_that_was_not_done_with_the_present_state_is_told_it_again(store: Store) -> None:
    first: list[ab.Notification] = []
    told: list[ab.Notification] = []
    done = threading.Event()

    def stuck(each: ab.Notification) -> None:
        first.append(each)
        done.wait(PATIENCE_S)

    group = store.reader_group("s/g", streams=["s/a"])
    former = group.on_segments(stuck, name="dash")
    until(lambda: first)
    group.on_segments(told.append, name="dash")
    until(lambda: told)
    done.set()
    until(lambda: isinstance(former.failure, Conflict))
    assert [each.segments for each in told] == [2]


def test_a_listener_may_close_the_store(tmp_path: Path) -> None:
    store = ab.connect(tmp_path / "store")
    store.streams.create_scope("s")
    prepare(store)
    closed = threading.Event()

    def close_at_the_end(each: ab.Notification) -> None:
        if each.kind == "sealed":
            store.close()
            closed.set()

    told: list[ab.Notification] = []
    store.on_notification(told.append, "s/a")
    store.on_notification(close_at_the_end, "s/a")
    until(lambda: told)
    store.streams.seal("s/a")
    assert closed.wait(PATIENCE_S)
    store.close()
    with ab.connect(tmp_path / "store") as again:
        assert sound(again)
