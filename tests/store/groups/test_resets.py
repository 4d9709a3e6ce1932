"""Resets of a reader group that change its streams and ends, and ends of some streams or ahead of the tail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import GroupStreamDeleted, InvalidArgument, InvalidCut, NotFound, ReaderNotInGroup, StreamNotFound
from anabranch.groups.cursor import GroupCursor
from anabranch.store import Store
from tests.store.groups.kit import KEYS, started, take, write
from tests.store.helpers import ANYWHERE, store_at
from tests.waiting import until, until_ended


@pytest.fixture(params=ANYWHERE)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store with the streams s/a and s/b."""
    with store_at(request.param, tmp_path) as store:
        for name in ("s/a", "s/b"):
            store.streams.create(name)
        yield store


def bodies(group: ab.ReaderGroup, name: str = "r") -> list[bytes]:
    """What a reader gets until the group's end."""
    with group.reader(name) as reader:
        return [event.body for event in reader]


def ahead(store: Store, stream: str, events: int) -> ab.StreamCut:
    """The cut so many events after the tail of the stream's one segment."""
    cut = store.cuts.tail(stream)
    ((segment, offset),) = cut.as_dict().items()
    return ab.StreamCut.of(cut.stream, {segment: offset + events})


def test_one_stream_ends_while_the_group_follows_another(pair: Store) -> None:
    write(pair, 0, 1, "s/a")
    group = pair.groups.open("s/g", streams=["s/a", "s/b"], end={"s/a": ab.TAIL})
    write(pair, 1, 1, "s/a")  # after the end
    write(pair, 0, 1, "s/b")
    with group.reader("r") as reader:
        seen = take(reader, 2 * KEYS)
        assert sorted(seen) == sorted(2 * [f"{key}:0".encode() for key in range(KEYS)])
        write(pair, 7, 1, "s/b")
        assert take(reader, KEYS) == [f"{key}:7".encode() for key in range(KEYS)]
        first = pair.streams.get("s/a").id
        until(lambda: all(segment.stream != first for segment in group.unread().segments))  # nothing is left of it
        pair.streams.seal("s/b")
        assert reader.read(60) is None  # nothing can follow


def test_an_end_for_a_stream_that_the_group_does_not_read_is_refused(pair: Store) -> None:
    with pytest.raises(InvalidArgument, match=r"\(s/a\), got s/b"):
        pair.groups.open("s/g", streams=["s/a"], end={"s/b": ab.TAIL})


def test_an_end_ahead_of_the_tail_is_read_up_to_once_it_is_written(pair: Store) -> None:
    write(pair, 0, 1)
    end = ahead(pair, "s/a", KEYS)
    group = pair.groups.open("s/g", streams=["s/a"], end=end)
    other = pair.groups.open("s/h", streams=["s/a"], end=str(end))
    seen: list[bytes] = []
    with group.reader("r") as reader:
        seen += take(reader, KEYS)
        assert reader.read() is None  # it waits for more
        until(lambda: group.unread().events == 0)
        waiting = started(lambda: seen.extend(event.body for event in reader))
        write(pair, 1, 2)  # the second of them is after the end
        until_ended(waiting)
    assert seen == [f"{key}:{n}".encode() for n in range(2) for key in range(KEYS)]
    assert bodies(other) == seen
    with pytest.raises(InvalidCut, match="belongs to stream"):
        pair.groups.open("s/i", streams=["s/b"], end=end)


def test_an_end_ahead_of_a_segment_that_is_sealed_before_is_where_it_was_sealed(pair: Store) -> None:
    group = pair.groups.open("s/g", streams=["s/a"], end=ahead(pair, "s/a", 100))
    write(pair, 0, 1)
    pair.streams.scale("s/a", 2)
    write(pair, 1, 1)
    assert len(bodies(group)) == KEYS


def test_a_reset_goes_to_the_last_complete_checkpoint_or_the_beginning(pair: Store) -> None:
    write(pair, 0, 3)
    group = pair.groups.open("s/g", streams=["s/a"], end=ab.TAIL)
    assert len(bodies(group)) == 3 * KEYS
    group.reset()  # there is no checkpoint yet
    with group.reader("r") as reader:
        take(reader, KEYS)
    group.checkpoint("c1")
    assert len(bodies(group)) == 2 * KEYS
    with group.reader("r") as reader:
        with pytest.raises(TimeoutError):
            group.checkpoint("pending", timeout_s=0)
        group.reset()
        with pytest.raises(ReaderNotInGroup):
            until(lambda: reader.read(0.05))
    assert group.unread().events == 2 * KEYS and group._state().pending == ()
    assert len(bodies(group)) == 2 * KEYS


def test_a_reset_changes_streams_and_ends(pair: Store) -> None:
    for stream in ("s/a", "s/b"):
        write(pair, 0, 2, stream)
    group = pair.groups.open("s/g", streams=["s/a"], end=ab.TAIL)
    assert len(bodies(group)) == 2 * KEYS
    group.checkpoint("c")
    group.reset(streams=["s/a", "s/b"], end={"s/b": ab.TAIL, "s/a": ab.TAIL})
    assert group.streams == ["s/a", "s/b"]
    assert len(bodies(group)) == 2 * KEYS  # the second from its head, the first from the checkpoint
    group.rewind()
    assert len(bodies(group)) == 4 * KEYS
    group.reset({"s/b": ab.HEAD}, streams="s/b")
    assert group.streams == ["s/b"] and len(bodies(group)) == 2 * KEYS
    group.reset("c")  # which has no position in it
    assert group.unread().events == 2 * KEYS
    write(pair, 2, 1, "s/b")
    group.reset(ab.HEAD, end=None)  # it follows now
    with group.reader("r") as reader:
        take(reader, 3 * KEYS)
        assert reader.read() is None
        assert not group._state().ended
    for wrong in ([], ["s/a", "s/a"]):
        with pytest.raises(InvalidArgument, match="each stream once"):
            group.reset(streams=wrong)
    with pytest.raises(StreamNotFound, match="s/none"):
        group.reset(streams=["s/none"])
    with pytest.raises(NotFound, match="kept: c"):
        group.reset("nothing")
    assert group.streams == ["s/b"]


def test_a_reader_open_at_a_reset_that_changes_streams_is_refused_and_not_ended(pair: Store) -> None:
    write(pair, 0, 1)
    group = pair.groups.open("s/g", streams=["s/a"], end=ab.TAIL)
    with group.reader("r") as reader:
        group.reset(ab.HEAD, streams=["s/b"])
        with pytest.raises(ReaderNotInGroup):
            until(lambda: reader.read(0.05) is None and None)


def test_a_group_survives_that_its_stream_was_deleted_and_made_again(pair: Store) -> None:
    write(pair, 0, 1)
    group = pair.groups.open("s/g", streams=["s/a", "s/b"], end={"s/a": ab.TAIL})
    reader = group.reader("r")
    take(reader, KEYS)
    group.reset()
    reader = group.reader("r")
    pair.streams.delete("s/a")
    with pytest.raises(GroupStreamDeleted, match="'s/a', which reader group 's/g' reads, was deleted: ") as error:
        until(lambda: reader.read(0.05) is None and None)
    assert not error.value.remade
    for call in (group.unread, group.reset, lambda: group.reader("other"), lambda: group.streams):
        with pytest.raises(GroupStreamDeleted, match="was deleted: "):
            call()
    reader.close()
    pair.streams.create("s/a")
    write(pair, 5, 1)
    with pytest.raises(GroupStreamDeleted, match=r"made again: group.reset\(\) continues") as error:
        group.reader("r")
    assert error.value.remade
    group.reset()
    with group.reader("r") as reader:
        assert take(reader, KEYS) == [f"{key}:5".encode() for key in range(KEYS)]
        write(pair, 6, 1)  # it follows the new one: the end belonged to the other
        assert take(reader, KEYS) == [f"{key}:6".encode() for key in range(KEYS)]


def test_a_group_continues_without_a_deleted_stream(pair: Store) -> None:
    write(pair, 0, 2, "s/b")
    group = pair.groups.open("s/g", streams=["s/a", "s/b"], end=ab.TAIL)
    group.checkpoint("c")
    pair.streams.delete("s/a")
    group.reset("c", streams=["s/b"])
    assert len(bodies(group)) == 2 * KEYS


def test_a_stream_that_was_renamed_and_made_again_is_found_by_its_last_name(pair: Store) -> None:
    group = pair.groups.open("s/g", streams=["s/a"])
    pair.streams.rename("s/a", "s/c")
    group.reader("r").close()  # which learns the name
    pair.streams.delete("s/c")
    pair.streams.create("s/c")
    group.reset()
    assert group.streams == ["s/c"]


def test_listeners_learn_of_the_segments_of_streams_that_a_reset_added(pair: Store) -> None:
    pair.streams.scale("s/b", 3)
    group = pair.groups.open("s/g", streams=["s/a"])
    counts: list[int | None] = []
    group.on_segments(lambda each: counts.append(each.segments))
    until(lambda: counts == [1])
    group.reset(streams=["s/a", "s/b"])
    until(lambda: counts == [1, 4])
    pair.streams.scale("s/b", 2)
    until(lambda: counts == [1, 4, 3])


@pytest.mark.parametrize("streams", [["s/a"], ["s/a", "s/b"], ["s/b"]])
def test_a_reader_that_is_opened_during_a_reset_reads_the_new_streams_up_to_the_new_end(
    pair: Store, monkeypatch: pytest.MonkeyPatch, streams: list[str]
) -> None:
    for stream in ("s/a", "s/b"):
        write(pair, 0, 1, stream)
    ends = {stream: pair.cuts.tail(stream) for stream in streams}
    for stream in ("s/a", "s/b"):
        write(pair, 1, 1, stream)  # after the end
    group, other = pair.groups.open("s/g", streams=["s/a"]), pair.groups.open("s/g")
    load, resets = GroupCursor.__init__, [lambda: other.reset(ab.HEAD, streams=streams, end=ends)]

    def load_then_reset(cursor: GroupCursor, *arguments: Any, **options: Any) -> None:
        load(cursor, *arguments, **options)
        if resets:
            resets.pop()()

    monkeypatch.setattr(GroupCursor, "__init__", load_then_reset)
    assert sorted(bodies(group)) == sorted(len(streams) * [f"{key}:0".encode() for key in range(KEYS)])
