"""Listeners with a name: they go on where they stopped, in whichever process."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import Conflict, InvalidArgument, Truncated
from anabranch.notifications.publisher import NAME
from anabranch.notifications.subscription import Subscription
from anabranch.store import Store
from tests.store.helpers import store_at
from tests.waiting import PATIENCE_S, until


def scales(told: list[ab.Notification]) -> list[int | None]:
    return [each.segments for each in told if each.kind == "scaled"]


def test_a_named_listener_continues_where_it_stopped(tmp_path: Path) -> None:
    told: list[ab.Notification] = []
    with store_at("sqlite", tmp_path) as store:
        store.streams.create("s/a", scaling=2)
        store.streams.create("s/other")
        stop = store.notifications.listen(told.append, "s/a", name="dash")
        store.streams.scale("s/a", 3)
        store.streams.scale("s/other", 7)
        until(lambda: stop.delivered == 2)  # and its place is noted
        assert scales(told) == [3]
        stop.close()
        store.streams.scale("s/a", 4)  # nobody listens
    with ab.connect(tmp_path / "store", create=True) as store:
        store.streams.scale("s/a", 5)
        store.notifications.listen(told.append, "s/a", name="dash")
        until(lambda: scales(told) == [3, 4, 5])
        store.streams.scale("s/a", 6)
        until(lambda: scales(told) == [3, 4, 5, 6])
    assert [each.kind for each in told] == ["present", "scaled", "scaled", "scaled", "scaled"]
    assert len({each.id for each in told}) == len(told)


def test_a_named_listener_to_all_streams_begins_at_its_start(anywhere: Store) -> None:
    anywhere.notifications.read()
    early: list[ab.Notification] = []
    late: list[ab.Notification] = []
    anywhere.notifications.listen(early.append, name="from the head", start=ab.HEAD)
    anywhere.notifications.listen(late.append, name="from now on")
    anywhere.streams.scale("s/a", 3)
    until(lambda: late and [each.kind for each in early][-1:] == ["scaled"])
    assert [each.kind for each in late] == ["scaled"]
    assert "created" in [each.kind for each in early]


def test_taking_over_a_name_ends_the_former_listener(store: Store) -> None:
    first: list[ab.Notification] = []
    second: list[ab.Notification] = []
    former = store.notifications.listen(first.append, "s/a", name="dash")
    until(lambda: first)
    store.notifications.listen(second.append, "s/a", name="dash")
    store.streams.scale("s/a", 3)
    until(lambda: scales(second) == [3])
    until(lambda: isinstance(former.failure, Conflict))
    store.streams.scale("s/a", 4)
    until(lambda: scales(second) == [3, 4])
    assert not scales(first)  # what came behind the take-over is told once


def test_notifications_removed_before_delivery_are_reported(store: Store) -> None:
    told: list[ab.Notification] = []
    stop = store.notifications.listen(told.append, "s/a", name="dash")
    until(lambda: stop.delivered)
    stop.close()
    store.streams.scale("s/a", 3)
    list(store.notifications.read())  # notes it down
    store.streams.truncate(NAME, store.cuts.tail(NAME))
    again = store.notifications.listen(told.append, "s/a", name="dash")
    until(lambda: isinstance(again.failure, Truncated))
    store.streams.scale("s/a", 4)
    until(lambda: scales(told) == [4])


def test_a_name_is_bound_to_one_stream_or_group_until_reset(anywhere: Store) -> None:
    anywhere.streams.create("s/b")
    told: list[ab.Notification] = []
    stop = anywhere.notifications.listen(told.append, "s/a", name="dash")
    until(lambda: told)
    stop.close()
    with pytest.raises(InvalidArgument, match="listener 'dash' exists for another stream or group"):
        anywhere.notifications.listen(told.append, "s/b", name="dash")
    anywhere.notifications.forget_listener("dash")
    anywhere.notifications.forget_listener("nobody")
    anywhere.notifications.listen(told.append, "s/b", name="dash")
    until(lambda: [each.stream for each in told] == ["s/a", "s/b"])
    for wrong in ("", "x" * 200, "\udcff"):
        with pytest.raises(InvalidArgument, match=r"expected a listener name|not Unicode"):
            anywhere.notifications.listen(told.append, name=wrong)


def test_a_named_listener_survives_deletion_of_the_notification_stream(store: Store) -> None:
    told: list[ab.Notification] = []
    stop = store.notifications.listen(told.append, "s/a", name="dash")
    store.streams.scale("s/a", 3)
    until(lambda: stop.delivered == 2)
    assert scales(told) == [3]
    stop.close()
    store.streams.delete(NAME)
    store.notifications.listen(told.append, "s/a", name="dash")
    store.streams.scale("s/a", 4)
    until(lambda: scales(told) == [3, 4])


def test_a_groups_named_listener_continues_with_its_saved_state(tmp_path: Path) -> None:
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
        store.streams.create("s/a", scaling=2)
        store.streams.create("s/b")
        group = store.groups.open("s/g", streams=["s/a", "s/b"])
        listeners = listen(group)
        store.streams.scale("s/a", 3)
        until(lambda: [each.delivered for each in listeners] == [2, 1, 1, 0, 0])  # and their places are noted
        for each in listeners:
            each.close()
        store.streams.scale("s/b", 2)  # nobody listens
        store.streams.truncate("s/b", store.cuts.tail("s/b"))
        with group.reader("r"):
            store.streams.scale("s/a", 4)
    with ab.connect(tmp_path / "store", create=True) as store:
        for name in ("s/a", "s/b"):
            store.streams.seal(name)
        group = store.groups.open("s/g")
        with group.reader("r") as reader:
            assert list(reader) == []
        listen(group)
        until(lambda: [len(each) for each in told.values()] == [5, 5, 3, 1, 1])
        with pytest.raises(InvalidArgument, match="listener 'segments' exists for another stream or group"):
            group.on_readers(print, name="segments")
        with pytest.raises(InvalidArgument, match="listener 'segments' exists for another stream or group"):
            store.notifications.listen(print, name="segments")
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
def test_a_groups_named_listener_restarts_where_its_state_can_not_be_derived(store: Store, gap: str) -> None:
    told: list[ab.Notification] = []
    store.streams.create("s/b", scaling=7)
    group = store.groups.open("s/g", streams=["s/a"])
    stop = group.on_segments(told.append, name="dash")
    until(lambda: stop.delivered)
    stop.close()
    store.streams.scale("s/a", 3)
    list(store.notifications.read())  # notes it down
    match gap:
        case "truncated":
            store.streams.truncate(NAME, store.cuts.tail(NAME))
        case "deleted":
            store.streams.delete(NAME)
        case "another group":
            group.delete()
            group = store.groups.open("s/g", streams=["s/b"])
    again = group.on_segments(told.append, name="dash")
    store.streams.scale(group.streams[0], 4)
    until(lambda: len(told) == 3)
    assert [each.segments for each in told] == [2, 7 if gap == "another group" else 3, 4]
    if gap == "truncated":
        until(lambda: isinstance(again.failure, Truncated))
    else:
        assert not isinstance(again.failure, Truncated)


def test_an_unprocessed_initial_state_is_delivered_again(store: Store) -> None:
    first: list[ab.Notification] = []
    told: list[ab.Notification] = []
    done = threading.Event()

    def stuck(each: ab.Notification) -> None:
        first.append(each)
        done.wait(PATIENCE_S)

    group = store.groups.open("s/g", streams=["s/a"])
    former = group.on_segments(stuck, name="dash")
    until(lambda: first)
    group.on_segments(told.append, name="dash")
    until(lambda: told)
    done.set()
    until(lambda: isinstance(former.failure, Conflict))
    assert [each.segments for each in told] == [2]
