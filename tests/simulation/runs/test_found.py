"""What the simulation found, told again in a few lines each, so that it stays mended."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from anabranch.errors import Fenced, StreamSealed
from anabranch.shared_state.synchronizer import StateSynchronizer
from anabranch.store import Store
from anabranch.streams.publish import Publication
from anabranch.testing.faults import Action, Call, Faults
from anabranch.writing.writer import Writer
from tests.simulation.clients import stored
from tests.simulation.world import World

pytestmark = pytest.mark.sim


def play(world: World, story: Callable[[Store], None], faults: Faults | None = None) -> None:
    """Run a story over one process with an empty stream of two segments."""

    def main() -> None:
        process = world.process("p", faults=faults)
        process.call(lambda store: (store.scopes.create("s"), store.streams.create("s/x", scaling=2)))
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
        old.close()  # the refusal was raised by its acknowledgement
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
        old.close()  # the refusal was raised by its acknowledgement
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


class LoseTheFirstCommit:
    """It never takes place, and its answer is lost."""

    def __init__(self) -> None:
        self.struck = False

    def decide(self, call: Call) -> Action:
        if self.struck or call.name != "catalog.commit":
            return Action.PASS
        self.struck = True
        return Action.UNCERTAIN_LOST


def test_a_superseded_writer_does_not_reach_its_successors_fence() -> None:
    """To resolve a lost commit it raised its fence on a segment that had been sealed before it was taken over. That
    made it equal to its successor, behind whose back it went on to append."""

    def story(store: Store) -> None:
        old = store.writer("s/x", writer_id="w")
        store.streams.scale("s/x", 3)
        new = store.writer("s/x", writer_id="w")
        with pytest.raises(Fenced):
            old.write(b"zombie", key="a").result()
        new.write(b"new", key="a").result()
        assert [event.payload for event in stored(store, "s/x")] == [b"new"]
        old.close()  # the refusal was raised by its acknowledgement
        new.close()

    play(World(1), story, LoseTheFirstCommit())


def test_a_writer_that_resolved_a_lost_commit_is_still_its_own_successor() -> None:
    """The fence that it raised to do so does not shut it out behind a scale."""

    def story(store: Store) -> None:
        with store.writer("s/x", writer_id="w") as writer:
            writer.write(b"1", key="a").result()
            store.streams.scale("s/x", 3)
            writer.write(b"2", key="a").result()
        assert [event.payload for event in stored(store, "s/x")] == [b"1", b"2"]

    play(World(1), story, LoseTheFirstCommit())


def test_shared_state_is_changed_in_turn_by_one_whose_commit_was_lost_before() -> None:
    """To resolve the lost commit it had raised its own fence, and its next update in turn did not carry that."""

    def story(store: Store) -> None:
        one = store.shared.synchronizer("s/state", initial=0)
        other: StateSynchronizer[int] = store.shared.synchronizer("s/state")
        for _ in range(3):
            other.update(lambda state: state + 1)
            one.update(lambda state: state + 1)
        assert other.fetch() == 6

    play(World(1), story, LoseTheFirstCommit())


class LoseAnAnswerAndTheCatalog:
    """Once armed: a transaction lands unanswered, and the next one finds nobody."""

    def __init__(self) -> None:
        self.left: list[tuple[str, Action]] = []

    def arm(self) -> None:
        self.left = [("writing.commit", Action.UNCERTAIN_LANDED), ("catalog.writing", Action.UNCERTAIN_LOST)]

    def decide(self, call: Call) -> Action:
        if self.left and call.name == self.left[0][0]:
            return self.left.pop(0)[1]
        return Action.PASS


def test_a_publication_that_may_have_landed_is_never_told_as_failed() -> None:
    """Its answer was lost, and when it asked again the catalog was away: it raised that nothing had happened."""
    faults = LoseAnAnswerAndTheCatalog()

    def story(store: Store) -> None:
        stager = store.stager("s/x")
        stager.write(pa.table({"key": ["a"], "payload": [b"1"]}))
        publication = Publication(store.streams.get("s/x").id, stager.finish())
        faults.arm()
        assert not store.publish([publication], request="r")  # the third attempt finds what the first one did
        assert not faults.left
        assert [event.payload for event in stored(store, "s/x")] == [b"1"]

    play(World(1), story, faults)


def test_a_writer_hears_of_the_seal_whoever_finds_it_out() -> None:
    """Where a background task met the seal while it read the routes anew, the waiting caller slept for ever."""
    for seed in range(30):

        def story(store: Store) -> None:
            writer = store.writer("s/x")
            sealing = store.runtime.tasks.spawn("seal", lambda: store.streams.seal("s/x"))
            with pytest.raises(StreamSealed):
                write_forever(writer)
            sealing.join()
            writer.close()

        play(World(seed), story)


def write_forever(writer: Writer) -> None:
    while True:
        writer.write(b"y", key="a").result()
