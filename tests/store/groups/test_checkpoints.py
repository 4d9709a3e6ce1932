"""Checkpoints and cuts of a reader group, going back, and what streams and groups that change mean for it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.core.group import GroupState
from anabranch.errors import (
    AlreadyExists,
    Conflict,
    GroupNotFound,
    InvalidArgument,
    NotFound,
    ReaderNotInGroup,
    StreamNotFound,
    Truncated,
)
from anabranch.model.cut import Order
from anabranch.store import Store
from tests.store.groups.kit import KEYS, sequences, started, take, write
from tests.waiting import until, until_ended


def test_a_checkpoint_is_a_cut_of_what_every_reader_was_given(store: Store) -> None:
    write(store, 0, 6)
    group = store.groups.open("s/g", streams=["s/a"])
    came: list[str] = []
    with group.reader("r1") as first, group.reader("r2") as second:
        until(lambda: len(first.segments) == len(second.segments) == 2)
        for reader in (first, second):
            reader.on_checkpoint(lambda name, reader=reader: came.append(f"{reader.name} {name}"))  # type: ignore[misc]
        given = take(first, 5)
        with pytest.raises(TimeoutError, match="still waiting for r1, r2"):
            group.checkpoint("c", timeout_s=0.0)
        until(lambda: first._membership.awaited_checkpoint and second._membership.awaited_checkpoint)
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


def test_a_reader_at_a_checkpoint_gets_the_callback_for_the_next_one_too(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    told: list[str] = []

    def handle(name: str) -> None:
        told.append(name)
        if name == "a":
            with pytest.raises(TimeoutError):
                group.checkpoint("b", timeout_s=0)

    with group.reader("r") as reader:
        reader.on_checkpoint(handle)
        with pytest.raises(TimeoutError, match="checkpoint 'a' of group 's/g' is still waiting for r"):
            group.checkpoint("a", timeout_s=0)
        until(lambda: reader.read(timeout_s=0.05) is None and len(group.checkpoints) == 2)
    assert told == ["a", "b"]
    assert [each.name for each in group.checkpoints] == ["a", "b"]


def test_several_checkpoints_are_pending_at_once_and_each_is_completed(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    names = [f"c{number}" for number in range(limits.CHECKPOINTS_PENDING_MAX)]
    with group.reader("r1") as first, group.reader("r2") as second:
        write(store, 0, 4)
        for number, name in enumerate(names):
            with pytest.raises(TimeoutError, match="'c0'" if number else "waiting for r1, r2"):
                group.checkpoint(name, timeout_s=0)
        with pytest.raises(Conflict, match="c0, c1"):
            group.checkpoint("one more", timeout_s=0)
        with pytest.raises(TimeoutError):
            group.generate_cut(timeout_s=0)
        group.cancel_checkpoint(names.pop(2))
        given: list[int] = []

        def all_complete() -> bool:
            given.extend(batch.num_rows for each in (first, second) if (batch := each.read()) is not None)
            return len(group.checkpoints) == len(names)

        until(all_complete)
    assert [each.name for each in group.checkpoints] == names
    stream = store.streams.get("s/a").id
    for earlier, later in pairwise(group.checkpoints):
        assert store.cuts.compare("s/a", earlier.cut(stream), later.cut(stream)) in (Order.BEFORE, Order.SAME)
    assert sum(given) == 4 * KEYS


def test_a_checkpoint_that_is_cancelled_leaves_the_others_pending(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        for name in ("a", "b", "c"):
            with pytest.raises(TimeoutError):
                group.checkpoint(name, timeout_s=0)
        group.cancel_checkpoint("a")
        with pytest.raises(TimeoutError, match="checkpoint 'b' of group 's/g' is still waiting for r "):
            group.checkpoint("b", timeout_s=0)
        until(lambda: reader.read() is None and len(group.checkpoints) == 2)
    assert [each.name for each in group.checkpoints] == ["b", "c"]


def test_a_generated_cut_is_after_processed_events_and_calls_no_checkpoint_callback(store: Store) -> None:
    write(store, 0, 6)
    group = store.groups.open("s/g", streams=["s/a"], lease_s=240, refresh_s=30)
    assert group.generate_cut() == group.cut() == {"s/a": store.cuts.head("s/a")}
    group.checkpoint("kept")
    told: list[str] = []
    with group.reader("r1") as reader:
        reader.on_checkpoint(told.append)
        given = take(reader, 5)
        assert group.cut() == {"s/a": store.cuts.head("s/a")}  # the reader tells what it is done with in 30 s
        with pytest.raises(TimeoutError, match="the cut of group 's/g' is still waiting for r1"):
            group.generate_cut(timeout_s=0)
        assert group._state().checkpoint is None  # it was withdrawn, and holds nobody up
        found: list[dict[str, ab.StreamCut]] = []
        asking = started(lambda: found.append(group.generate_cut()))
        until(lambda: group._state().checkpoint)
        with reader._lock:
            reader._assigned.sync_with_group()  # as it does every now and then
        assert reader.read() is not None  # it comes to it behind the five
        until_ended(asking)
    assert told == []
    assert [each.name for each in group.checkpoints] == ["kept"]
    with store.reader("s/a", start=found[0]["s/a"]) as behind:
        assert {event.body for event in behind}.isdisjoint(given)
    group.reset(found[0])
    assert group.unread().events == 6 * KEYS - 5


def test_a_generated_cut_waits_for_a_checkpoint_unless_that_is_cancelled(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    group.cancel_checkpoint()
    reader = group.reader("r")
    refused: list[str] = []

    def ask() -> None:
        with pytest.raises(NotFound) as error:
            group.checkpoint("c")
        refused.append(str(error.value))

    asking = started(ask)
    until(lambda: group._state().checkpoint)
    with pytest.raises(TimeoutError, match="the cut of group 's/g' is still waiting for checkpoint 'c'"):
        group.generate_cut(timeout_s=0)
    group.cancel_checkpoint()
    until_ended(asking)
    assert "was dropped before" in refused[0]
    waiting = started(group.generate_cut)
    until(lambda: group._state().checkpoint)
    with pytest.raises(TimeoutError):
        group.checkpoint("d", timeout_s=0)  # comes after the cut
    until(lambda: reader.read(timeout_s=0.05) is None and [each.name for each in group.checkpoints] == ["d"])
    until(lambda: reader.read(timeout_s=0.05) is None and not waiting.is_alive())
    reader.close()


def test_a_reader_that_leaves_is_not_waited_for(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    reader = group.reader("r")
    done: list[ab.Checkpoint] = []
    asking = started(lambda: done.append(group.checkpoint("c")))
    until(lambda: store.groups.open("s/g")._state().checkpoint is not None)
    reader.close()
    until_ended(asking)
    assert done[0].cut(store.streams.get("s/a").id) == group.cut()["s/a"]


def test_checkpoints_begin_automatically(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"], checkpoint_s=0.05)
    with group.reader("r") as reader:
        until(lambda: reader.read(timeout_s=0.05) is None and len(group.checkpoints) >= 2)
    assert group.checkpoints[0].name.startswith("auto-")


def test_rewind_and_reset_remove_the_readers(store: Store) -> None:
    write(store, 0, 2)
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        take(reader, 2 * KEYS)
        reader.commit()
        middle = group.cut()
        write(store, 2, 1)
        group.rewind()
        with pytest.raises(ReaderNotInGroup, match="reader 'r' is no longer in group 's/g'"):
            list(reader)
    assert group.unread().events == 3 * KEYS
    for place, events in ((middle, KEYS), (ab.TAIL, 0), ({"s/a": ab.HEAD}, 3 * KEYS), ("head", 3 * KEYS)):
        group.reset(place)
        assert group.unread().events == events
    with pytest.raises(NotFound, match="or a checkpoint of group 's/g' \\(kept: none\\), got 'c9'"):
        group.reset("c9")
    with pytest.raises(InvalidArgument, match="a place for each"):
        group.reset({"s/b": ab.HEAD})


def test_truncation_is_raised_once_and_reading_continues_at_the_head(store: Store) -> None:
    write(store, 0, 3)
    group = store.groups.open("s/g", streams=["s/a"])
    store.streams.truncate("s/a", store.cuts.tail("s/a"))
    write(store, 3, 1)
    assert group.unread().events == KEYS
    with group.reader("r") as reader:
        with pytest.raises(Truncated):
            next(iter(reader))
        assert sequences(take(reader, KEYS)) == {key: [3] for key in range(KEYS)}


@pytest.mark.parametrize("moved", [True, False])
def test_a_group_object_never_refers_to_another_group_of_its_name(store: Store, moved: bool) -> None:
    write(store, 0, 1)
    store.scopes.create("t")
    group = store.groups.open("t/g", streams=["s/a"])
    if moved:
        store.scopes.rename("t", "u")
        store.scopes.create("t")
        with group.reader("r") as reader:
            assert store.groups.open("u/g").readers == ["r"] and reader.read(1.0) is not None
    else:
        group.delete()
    other = store.groups.open("t/g", streams=["s/a"])
    group.delete()
    with pytest.raises(GroupNotFound):
        group.reader("r")
    assert other.readers == [] and other.unread().events == KEYS
    assert list(store.groups.list()) == ["t/g"]


def test_after_a_stream_is_deleted_a_new_group_continues_with_the_others(store: Store) -> None:
    store.streams.create("s/b")
    write(store, 0, 1)
    write(store, 0, 1, "s/b")
    group = store.groups.open("s/g", streams=["s/a", "s/b"])
    with group.reader("r") as reader:
        take(reader, KEYS)
    store.streams.delete("s/b")
    with pytest.raises(StreamNotFound):
        group.reader("r")
    cut = group.cut()
    assert list(cut) == ["s/a"]
    read = sum(offset for _, offset in cut["s/a"])
    assert store.groups.open("s/h", streams=["s/a"], start=cut).unread().events == KEYS - read


def test_readers_of_a_deleted_group_get_group_not_found(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        group.delete()
        group.delete()
        with pytest.raises(GroupNotFound):
            list(reader)
    for call in (group.unread, group.cut, group.rewind, lambda: group.reader("x"), lambda: group.checkpoints):
        with pytest.raises(GroupNotFound):
            call()
    assert store.groups.list() == []
    assert store.groups.open("s/g", streams=["s/a"]).readers == []


def test_a_checkpoint_of_a_group_that_is_reset_to_other_streams_meanwhile_is_dropped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.streams.create("s/b")
    group, other = store.groups.open("s/g", streams=["s/a"]), store.groups.open("s/g", streams=["s/a"])
    update = group._update

    def reset_before(change: Callable[[GroupState], GroupState]) -> GroupState:
        if group._state().checkpoint is not None:
            other.reset("head", streams=["s/b"])
        return update(change)

    monkeypatch.setattr(group, "_update", reset_before)
    with pytest.raises(NotFound, match="the group was reset"):
        group.checkpoint("c")
