"""What the simulation found, told again in a few lines each, so that it stays mended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from anabranch.errors import Fenced, StreamSealed
from anabranch.store import Store
from anabranch.streams.writer import Writer
from anabranch.testing.clients import stored
from anabranch.testing.world import World

pytestmark = pytest.mark.sim


def play(world: World, story: Callable[[Store], None]) -> None:
    """Run a story over one process with an empty stream of two segments."""

    def main() -> None:
        process = world.process("p")
        process.call(lambda store: (store.streams.create_scope("s"), store.streams.create("s/x", scaling=2)))
        process.call(story)
        process.close()

    with world:
        world.run(main)


def test_a_superseded_writer_is_refused_however_alike_its_numbers() -> None:
    """Its batch had the numbers of one that its successor had landed, and was acknowledged without being stored."""

    def story(store: Store) -> None:
        old = store.writer("s/x", writer_id="w")
        new = store.writer("s/x", writer_id="w")
        assert new.write(b"new", key="a").result().offset == 0
        with pytest.raises(Fenced):
            old.write(b"old", key="a").result()
        assert [event.payload for event in stored(store, "s/x")] == [b"new"]
        with pytest.raises(Fenced):
            old.close()
        new.close()

    play(World(1), story)


def test_a_superseded_writer_stays_so_behind_a_scale() -> None:
    """The fence stood on the sealed segment's log alone, so the older writer was first on the new one."""

    def story(store: Store) -> None:
        old = store.writer("s/x", writer_id="w")
        new = store.writer("s/x", writer_id="w")
        new.write(b"1", key="a").result()
        store.streams.scale("s/x", 3)
        with pytest.raises(Fenced):
            old.write(b"zombie", key="a").result()
        new.write(b"2", key="a").result()
        assert [event.payload for event in stored(store, "s/x")] == [b"1", b"2"]
        with pytest.raises(Fenced):
            old.close()
        new.close()

    play(World(1), story)


def test_a_writer_is_its_own_successor_behind_a_scale() -> None:
    """The inherited fence refuses others, not the writer that raised it; not even one without a name."""

    def story(store: Store) -> None:
        for name in (None, "w"):
            with store.writer("s/x", writer_id=name) as writer:
                for count in (3, 1, 4):
                    writer.write(b"x", key="a").result()
                    store.streams.scale("s/x", count)
                    writer.write(b"x", key="a").result()
        assert len(stored(store, "s/x")) == 12

    play(World(1), story)


def test_a_writer_hears_of_the_seal_whoever_finds_it_out() -> None:
    """Where a background task met the seal while it read the routes anew, the waiting caller slept for ever."""
    for seed in range(30):

        def story(store: Store) -> None:
            writer = store.writer("s/x")
            sealing = store.runtime.tasks.spawn("seal", lambda: store.streams.seal("s/x"))
            with pytest.raises(StreamSealed):
                write_for_ever(writer)
            sealing.join()
            with pytest.raises(StreamSealed):
                writer.close()

        play(World(seed), story)


def write_for_ever(writer: Writer) -> None:
    while True:
        writer.write(b"y", key="a").result()
