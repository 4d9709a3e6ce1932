"""Notifications between processes: who listens hears of what another does, and who is killed while it notes changes down
leaves neither a gap nor anything twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import anabranch as ab
from tests.parameters import rest_is_slow
from tests.postgres_server import drop, fresh_url
from tests.process.children import Child, Tell
from tests.waiting import until

Place = tuple[str, str | None]


@pytest.fixture(params=rest_is_slow(["sqlite", "postgres+folder"]))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        yield str(tmp_path / "store"), None
        return
    url = fresh_url()
    yield url, str(tmp_path / "blobs")
    drop(url)


def listen(tell: Tell, store_at: str, blobs: str | None) -> None:
    """Tell what the group's listeners are told, until all is read to the end."""
    with ab.connect(store_at, blobs=blobs, create=True) as store:
        group = store.groups.open("s/g")
        ends: list[ab.Notification] = []
        readers: list[ab.Notification] = []
        segments: list[int | None] = []

        def on_segments(each: ab.Notification) -> None:
            tell("segments", each.segments, each.readers)
            segments.append(each.segments)

        def on_readers(each: ab.Notification) -> None:
            tell("readers", ",".join(each.detail["names"]))
            readers.append(each)

        group.on_segments(on_segments)
        group.on_readers(on_readers)
        group.on_end_of_data(ends.append)
        while not ends or 0 not in segments or len(readers) < 2:
            time.sleep(0.005)
        tell("end", len(ends))


def note(tell: Tell, store_at: str, blobs: str | None) -> None:
    """Note down whatever changes, for as long as it runs."""
    with ab.connect(store_at, blobs=blobs, create=True) as store:
        tell("ready")
        for _ in store.notifications.read(follow=True):
            pass


def told(child: Child, word: str) -> list[list[str]]:
    return [line[1:] for line in child.lines() if line[0] == word]


def test_a_listener_hears_of_what_another_process_does(place: Place, tmp_path: Path) -> None:
    store_at, blobs = place
    with ab.connect(store_at, blobs=blobs, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=2)
        group = store.groups.open("s/g", streams=["s/a"])
        child = Child(tmp_path, "listener", listen, store_at, blobs)
        child.wait_for("segments")
        child.wait_for("readers")
        store.streams.scale("s/a", 3)
        store.streams.scale("s/a", 1)
        store.streams.seal("s/a")
        with group.reader("r") as reader:
            assert list(reader) == []
        child.wait_for("end")
        assert child.join() == 0
    assert told(child, "segments")[:3] == [["2", "0"], ["3", "0"], ["1", "0"]]
    assert [line[0] for line in told(child, "segments")[3:]] == ["0"]
    assert told(child, "readers")[:2] == [[], ["r"]]
    assert told(child, "end") == [["1"]]


@pytest.mark.slow
def test_who_is_killed_noting_down_leaves_no_gap_and_nothing_twice(place: Place, tmp_path: Path) -> None:
    store_at, blobs = place
    with ab.connect(store_at, blobs=blobs, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        number = 0
        for life in range(4):
            child = Child(tmp_path, f"noting-{life}", note, store_at, blobs)
            child.wait_for("ready")
            for _ in range(5 + 3 * life):  # so that it is killed at different moments
                store.streams.tag("s/a", {"n": str(number)})
                number += 1
            child.kill()
        found = [each.detail["tags"]["n"] for each in store.notifications.read("s/a") if each.kind == "tagged"]
        assert found == [str(each) for each in range(number)]
        assert list(store.check()) == []


def number_of(each: ab.Notification) -> int:
    """A stream's tag, or what a scaling to so many segments and three more is to a group."""
    return int(each.detail["tags"]["n"]) if each.segments is None else each.segments - 3


def listen_by_name(tell: Tell, store_at: str, blobs: str | None, to_group: bool, killed_at: int) -> None:
    """Tell what a listener with a name is given, and when it is done with it: never with the one it is to be killed at."""

    def handle(each: ab.Notification) -> None:
        number = number_of(each)
        tell("given", number)
        if number == killed_at:
            time.sleep(600)
        tell("done", number)

    with ab.connect(store_at, blobs=blobs, create=True) as store:
        if to_group:
            store.groups.open("s/g").on_segments(handle, name="dash")
        else:
            store.notifications.listen(handle, name="dash")
        tell("listens")
        time.sleep(600)


@pytest.mark.parametrize("to_group", rest_is_slow([True, False]))
def test_a_killed_listener_with_a_name_misses_nothing_and_is_notified_again_only_what_it_was_at(
    place: Place, tmp_path: Path, to_group: bool
) -> None:
    store_at, blobs = place
    with ab.connect(store_at, blobs=blobs, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a")
        store.streams.create("s/b")
        if to_group:
            store.groups.open("s/g", streams=["s/a", "s/b"])
        numbers = iter(range(100))

        def change() -> None:
            number = next(numbers)
            if to_group:
                store.streams.scale("s/a", number + 2)
            else:
                store.streams.tag("s/a", {"n": str(number)})

        children: list[Child] = []
        for killed_at in (2, 7, 11):
            child = Child(tmp_path, f"named-{killed_at}", listen_by_name, store_at, blobs, to_group, killed_at)
            child.wait_for("listens")
            for _ in range(4):
                change()
            until(partial(was_given, child, killed_at))
            child.kill()
            change()  # nobody listens
            children.append(child)
    present = ["-1"] if to_group else []
    assert [line[0] for child in children for line in told(child, "done")] == [*present, *(str(n) for n in range(11))]
    assert [line[0] for child in children for line in told(child, "given")] == [
        *present,
        *("0", "1", "2"),
        *("2", "3", "4", "5", "6", "7"),
        *("7", "8", "9", "10", "11"),
    ]


def was_given(child: Child, number: int) -> bool:
    return [str(number)] in told(child, "given")
