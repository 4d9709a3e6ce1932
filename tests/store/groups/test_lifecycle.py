"""Readers as many as there is work for, an account of what they read, coroutines, closing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.errors import GroupNotFound, InvalidArgument
from anabranch.store import Store
from tests.store.groups.kit import KEYS, complete, started, take, write
from tests.waiting import until, until_ended


def test_a_group_continues_when_its_stream_is_renamed(store: Store) -> None:
    write(store, 0, 1)
    group = store.groups.open("s/g", streams=["s/a"])
    with group.reader("r") as reader:
        take(reader, 3)
        store.streams.rename("s/a", "s/b")
        write(store, 1, 1, "s/b")
        take(reader, 2 * KEYS - 3)
    assert group.streams == ["s/b"] and group.unread().events == 0


def test_the_error_for_a_group_of_a_renamed_scope_names_the_new_one(store: Store) -> None:
    store.groups.open("s/g", streams=["s/a"])
    store.scopes.rename("s", "t")
    with pytest.raises(GroupNotFound, match="'s/g' was renamed to 't/g'") as caught:
        store.groups.open("s/g")
    assert store.groups.open(caught.value.name or "").streams == ["t/a"]


def test_elastic_readers_follow_the_lag(store: Store) -> None:
    write(store, 0, 40)
    group = store.groups.open("s/g", streams=["s/a"])
    called: list[str] = []
    with group.elastic(
        lambda name: called.append(f"+{name}"),
        lambda name: called.append(f"-{name}"),
        readers_max=3,
        events_per_reader=KEYS,
        every_s=0.02,
    ) as readers:
        until(lambda: len(readers.running) == 3)
        group.reset(ab.TAIL)
        until(lambda: readers.running == ["elastic-1"])
    assert called == ["+elastic-1", "+elastic-2", "+elastic-3", "-elastic-3", "-elastic-2", "-elastic-1"]


def test_a_removed_elastic_reader_is_replaced_while_events_are_unread(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    called: list[str] = []

    def start(name: str) -> None:
        called.append(f"+{name}")
        group.reader(name)

    def stop(name: str) -> None:
        called.append(f"-{name}")

    with group.elastic(start, stop, readers_max=1, every_s=3600) as readers:
        until(lambda: readers.running == ["elastic-1"])
        readers.step()
        group.reader_offline("elastic-1")
        readers.step()
        assert readers.running == group.readers == ["elastic-2"]
        readers.step()
        group.reset(ab.HEAD)
        readers.step()
        assert readers.running == group.readers == ["elastic-3"]
        readers.step()
        store.streams.seal("s/a")  # and it is empty
        group.reader_offline("elastic-3")
        readers.step()
        assert readers.running == ["elastic-3"]
    assert called == ["+elastic-1", "-elastic-1", "+elastic-2", "-elastic-2", "+elastic-3", "-elastic-3"]


def test_an_error_of_an_elastic_callback_is_raised_by_close(store: Store) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    readers = group.elastic(lambda name: [][0], print, readers_max=1)
    with pytest.raises(IndexError):
        readers.close()
    with pytest.raises(InvalidArgument):
        group.elastic(print, print, readers_max=0)


def test_an_audit_counts_duplicates_missing_events_and_latencies(store: Store) -> None:
    store.streams.create("s/one")
    with store.writer("s/one") as writer:
        for body in ("w 0", "w 1", "w 1", "w 4", "v 7", "w 2", "no number"):
            writer.write(body, key="k")
        writer.write("w 9", key="other")
    group = store.groups.open("s/g", streams=["s/one"], end=ab.TAIL)

    def source(event: ab.Event) -> tuple[str, int] | None:
        writer, number = event.body.decode().split()
        return (writer, int(number)) if number.isdigit() else None

    audit = group.audit(source)
    with group.reader("r") as reader:
        assert len(list(audit.over(reader))) == 8
    w, v = audit.writers["w"], audit.writers["v"]
    assert (w.events, w.duplicates, w.missing) == (6, 2, 2) and (v.events, v.duplicates, v.missing) == (1, 0, 0)
    assert 0 <= w.latency_us(0.5) <= w.latency_us(0.99) <= w.latency_us_max


def test_a_group_reader_in_a_coroutine(store: Store) -> None:
    write(store, 0, 3)
    group = store.groups.open("s/g", streams=["s/a"], end=ab.TAIL)

    async def read() -> list[bytes]:
        async with group.reader("r") as reader:
            return [event.body async for event in reader]

    assert complete(asyncio.run(read()), 3)
    assert group.unread().events == 0


def test_closing_the_store_removes_its_readers_from_the_group(tmp_path: Path) -> None:
    with ab.connect(tmp_path / "river", create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/a", scaling=4)
        write(store, 0, 2)
        group = store.groups.open("s/g", streams=["s/a"])
        in_hand = take(group.reader("r"), 1)
    with ab.connect(tmp_path / "river", create=True) as store:
        group = store.groups.open("s/g")
        assert group.readers == []
        with group.reader("r") as reader:
            assert set(in_hand) <= set(take(reader, 2 * KEYS))


def test_a_waiting_reader_ends_when_another_thread_closes_it(store: Store) -> None:
    reader = store.groups.open("s/g", streams=["s/a"]).reader("r")
    events = iter(reader)  # while it is open: from then on a close ends the iteration, whenever it comes
    found: list[ab.Event] = []
    waiting = started(lambda: found.extend(events))
    time.sleep(0.05)  # it waits by then, or finds it closed: either way it must end
    reader.close()
    until_ended(waiting)
    assert found == []


@pytest.mark.parametrize("name", ["", "x" * 200, "\udcff"])
def test_a_name_of_no_characters_too_many_or_none_of_unicode_is_refused(store: Store, name: str) -> None:
    group = store.groups.open("s/g", streams=["s/a"])
    with pytest.raises(InvalidArgument):
        group.reader(name)
    with pytest.raises(InvalidArgument):
        group.checkpoint(name)
    assert group.readers == []
    group.reader("né").close()
