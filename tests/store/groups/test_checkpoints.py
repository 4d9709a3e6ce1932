"""Checkpoints and cuts of a reader group, going back, and what streams and groups that change mean for it."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.errors import (
    AlreadyExists,
    GroupNotFound,
    InvalidArgument,
    NotFound,
    ReaderNotInGroup,
    StreamNotFound,
    Truncated,
)
from anabranch.store import Store
from tests.store.groups.kit import KEYS, sequences, started, take, write
from tests.waiting import until, until_ended


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
        until(lambda: first._share.awaited_checkpoint and second._share.awaited_checkpoint)
        given += take(second, 3)  # it came to the checkpoint before these
        given_after = given[5:]
        while first.read() is not None:  # this one comes to it behind the five, and goes on
            pass
        until(lambda: group.checkpoints)
    assert sorted(came) == ["r1 c", "r2 c"] and [each.name for each in group.checkpoints] == ["c"]
    with pytest.raises(AlreadyExists):
        group.checkpoint("c")
    for no_name in ("", "c" * 129, None):
        with pytest.raises(InvalidArgument):
            group.checkpoint(no_name)  # type: ignore[arg-type]
    group.reset("c")
    with group.reader("r") as reader:
        again = take(reader, 6 * KEYS - 5)
    assert set(again).isdisjoint(given[:5]) and set(given_after) <= set(again)
    assert group.unread().events == 0


def test_a_reader_that_is_at_a_checkpoint_when_another_is_begun_is_told_of_both(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    told: list[str] = []

    def handle(name: str) -> None:
        told.append(name)
        if name == "a":
            with pytest.raises(TimeoutError):
                group.checkpoint("b", timeout_s=0)

    with group.reader("r") as reader:
        reader.on_checkpoint(handle)
        with pytest.raises(TimeoutError, match="checkpoint 'a' of group 's/g' waits for r"):
            group.checkpoint("a", timeout_s=0)
        until(lambda: reader.read(timeout_s=0.05) is None and group.checkpoints)
    assert told == ["a", "b"]
    assert [each.name for each in group.checkpoints] == ["b"]


def test_a_generated_cut_is_behind_what_readers_are_done_with_and_disturbs_nobody(store: Store) -> None:
    write(store, 0, 6)
    group = store.reader_group("s/g", streams=["s/a"], lease_s=240, refresh_s=30)
    assert group.generate_cut() == group.cut() == {"s/a": store.streams.head("s/a")}
    group.checkpoint("kept")
    told: list[str] = []
    with group.reader("r1") as reader:
        reader.on_checkpoint(told.append)
        given = take(reader, 5)
        assert group.cut() == {"s/a": store.streams.head("s/a")}  # the reader tells what it is done with in 30 s
        with pytest.raises(TimeoutError, match="a cut of group 's/g' waits for r1"):
            group.generate_cut(timeout_s=0)
        assert group._state().checkpoint is None  # it was withdrawn, and holds nobody up
        found: list[dict[str, ab.StreamCut]] = []
        asking = started(lambda: found.append(group.generate_cut()))
        until(lambda: group._state().checkpoint)
        with reader._busy:
            reader._standing.meet()  # as it does every now and then
        assert reader.read() is not None  # it comes to it behind the five
        until_ended(asking)
    assert told == []
    assert [each.name for each in group.checkpoints] == ["kept"]
    with store.reader("s/a", start=found[0]["s/a"]) as behind:
        assert {event.body for event in behind}.isdisjoint(given)
    group.reset(found[0])
    assert group.unread().events == 6 * KEYS - 5


def test_a_generated_cut_waits_for_a_checkpoint_and_a_cancelled_one_holds_nobody_up(store: Store) -> None:
    group = store.reader_group("s/g", streams=["s/a"])
    group.cancel_checkpoint()
    reader = group.reader("r")
    refused: list[str] = []

    def ask() -> None:
        with pytest.raises(NotFound) as error:
            group.checkpoint("c")
        refused.append(str(error.value))

    asking = started(ask)
    until(lambda: group._state().checkpoint)
    with pytest.raises(TimeoutError, match="a cut of group 's/g' waits for checkpoint 'c'"):
        group.generate_cut(timeout_s=0)
    group.cancel_checkpoint()
    until_ended(asking)
    assert "was given up" in refused[0]
    waiting = started(group.generate_cut)
    until(lambda: group._state().checkpoint)
    with pytest.raises(TimeoutError):
        group.checkpoint("d", timeout_s=0)  # goes first
    until(lambda: reader.read(timeout_s=0.05) is None and [each.name for each in group.checkpoints] == ["d"])
    until(lambda: reader.read(timeout_s=0.05) is None and not waiting.is_alive())
    reader.close()


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


@pytest.mark.parametrize("moved", [True, False])
def test_a_group_in_hand_is_never_another_that_got_its_name(store: Store, moved: bool) -> None:
    write(store, 0, 1)
    store.streams.create_scope("t")
    group = store.reader_group("t/g", streams=["s/a"])
    if moved:
        store.streams.move_scope("t", "u")
        store.streams.create_scope("t")
        with group.reader("r") as reader:
            assert store.reader_group("u/g").readers == ["r"] and reader.read(1.0) is not None
    else:
        group.delete()
    other = store.reader_group("t/g", streams=["s/a"])
    group.delete()
    with pytest.raises(GroupNotFound):
        group.reader("r")
    assert other.readers == [] and other.unread().events == KEYS
    assert list(store.reader_groups()) == ["t/g"]


def test_where_a_stream_was_deleted_another_group_goes_on_with_the_others(store: Store) -> None:
    store.streams.create("s/b")
    write(store, 0, 1)
    write(store, 0, 1, "s/b")
    group = store.reader_group("s/g", streams=["s/a", "s/b"])
    with group.reader("r") as reader:
        take(reader, KEYS)
    store.streams.delete("s/b")
    with pytest.raises(StreamNotFound):
        group.reader("r")
    cut = group.cut()
    assert list(cut) == ["s/a"]
    read = sum(offset for _, offset in cut["s/a"])
    assert store.reader_group("s/h", streams=["s/a"], start=cut).unread().events == KEYS - read


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
