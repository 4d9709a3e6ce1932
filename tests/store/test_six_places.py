"""The six places where a message can go wrong, and what then becomes of it.

    producer ─▶ its way to the store ─▶ the store's commit ─▶ the log ─▶ consumer
        ▲──────────────── the way back ───────────────┘

Each test drives the same few events past one place that fails, and then looks at what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import BlobMissing, Closed, CorruptBlob, StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from anabranch.testing.faults import Action, Call, FaultAt
from tests.simulation.world import ProcessCrashed, World
from tests.store.helpers import bodies_of, events_of, sound

EVENTS = 12
SMALL, LARGE = Settings(), Settings(inline_bytes_max=0)


class Strike:
    """Lets the `number`th call of a name go wrong, and remembers that it did."""

    def __init__(self, name: str, action: Action, number: int = 1) -> None:
        self.name, self.action, self.left = name, action, number
        self.struck = False

    def decide(self, call: Call) -> Action:
        if call.name != self.name or self.struck:
            return Action.PASS
        self.left -= 1
        self.struck = self.left == 0
        return self.action if self.struck else Action.PASS


def furnish(world: World) -> None:
    process = world.process("maker")
    process.call(lambda store: store.scopes.create("s"))
    process.call(lambda store: store.streams.create("s/raw", scaling=2))
    process.close()


def produce(store: Store, begin: int, told: list[int], *, name: str = "producer") -> None:
    """Events from `begin` on, of one key, one after another; `told` are those that were acknowledged."""
    with store.writer("s/raw", writer_id=name) as writer:
        for number in range(begin, EVENTS):
            writer.write(b"%d" % number, key="a").result()
            told.append(number)


def look(world: World) -> list[int]:
    process = world.process("looker")
    found: list[int] = process.call(
        lambda store: [int(body) for body in bodies_of(store, "s/raw")] if sound(store) else []
    )
    process.close()
    return found


# 1. the producer


@pytest.mark.parametrize("settings", [SMALL, LARGE])
def test_a_producer_killed_at_any_call_goes_on_behind_what_landed(settings: Settings) -> None:
    """Its successor of the same name looks where it stopped, and hands over the rest. Whether it was killed before the
    event was handed over or after, every event is there once."""
    number, finished = 1, False
    while not finished:
        with World(number, settings=settings) as world:
            told: list[int] = []

            def story(world: World = world, told: list[int] = told, number: int = number) -> None:
                nonlocal finished
                furnish(world)
                try:
                    first = world.process("first", faults=FaultAt(number, Action.CRASH_BEFORE))
                    first.call(lambda store: produce(store, 0, told))
                    first.close()
                    finished = True
                except ProcessCrashed:
                    pass
                landed = look(world)
                assert set(told) <= set(landed) == set(range(len(landed)))
                second = world.process("second")
                second.call(lambda store: produce(store, len(landed), told))
                second.close()
                assert look(world) == list(range(EVENTS))

            world.run(story)
        number += 1


# 2. its way to the store


@pytest.mark.parametrize("name", ["blobs.put", "catalog.commit"])
@pytest.mark.parametrize("action", [Action.CRASH_BEFORE, Action.CRASH_AFTER])
def test_a_hand_over_interrupted_leaves_nothing_or_all_of_it(name: str, action: Action) -> None:
    """The append dies on its way: an orphan blob at most, and an atomic batch is never torn."""
    with World(7, settings=LARGE) as world:

        def story() -> None:
            furnish(world)
            strike = Strike(name, action, number=2)
            batch = pa.table({"key": [f"k{i}" for i in range(EVENTS)], "payload": [b"x"] * EVENTS})

            def hand_over(store: Store) -> None:
                with store.writer("s/raw") as writer:
                    writer.write_batch(batch, atomic=True).result()
                    writer.write_batch(batch, atomic=True).result()

            process = world.process("producer", faults=strike)
            with pytest.raises(ProcessCrashed):
                process.call(hand_over)
            assert strike.struck
            looker = world.process("looker")
            landed = 2 if (name, action) == ("catalog.commit", Action.CRASH_AFTER) else 1
            assert len(looker.call(lambda store: bodies_of(store, "s/raw"))) == landed * EVENTS
            assert looker.call(sound)
            looker.close()

        world.run(story)


# 3. the store's commit


@pytest.mark.parametrize("settings", [SMALL, LARGE])
@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
@pytest.mark.parametrize("number", [1, 5, EVENTS])
def test_a_commit_of_unknown_outcome_is_found_out_and_made_once(
    settings: Settings, action: Action, number: int
) -> None:
    """The writer's progress is asked for and its fence raised, so that the lost commit can't land later."""
    with World(number, settings=settings) as world:

        def story() -> None:
            furnish(world)
            strike, told = Strike("catalog.commit", action, number), []  # type: tuple[Strike, list[int]]
            process = world.process("producer", faults=strike)
            process.call(lambda store: produce(store, 0, told))
            process.close()
            assert strike.struck and told == list(range(EVENTS))
            assert look(world) == list(range(EVENTS))

        world.run(story)


# 4. the log


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "one bit":
            middle = len(data) - 200
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :])
        case "cut short":
            path.write_bytes(data[: len(data) // 2])
        case "zeros":
            path.write_bytes(bytes(len(data)))
        case "gone":
            path.unlink()


@pytest.mark.parametrize("how", ["one bit", "cut short", "zeros", "gone"])
@pytest.mark.parametrize("compacted", [False, True])
def test_damage_to_the_log_is_noticed_and_never_read_as_events(tmp_path: Path, how: str, compacted: bool) -> None:
    written = [b"%d " % i + b"x" * 5_000 for i in range(EVENTS)]
    with ab.connect(tmp_path, settings=LARGE, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw")
        with store.writer("s/raw") as writer:
            for body in written:
                writer.write(body).result()
        if compacted:
            store.compact(force=True)
    pattern = "*.parquet" if compacted else "*.arrow"
    damage(sorted((tmp_path / "blobs").rglob(pattern))[EVENTS // 2 if not compacted else 0], how)
    with ab.connect(tmp_path, create=True) as store:
        read: list[bytes] = []
        with pytest.raises((CorruptBlob, BlobMissing)), store.reader("s/raw") as reader:
            read.extend(event.body for event in reader)
        assert read == written[: len(read)]
        assert [finding for finding in store.check() if "s/raw" in str(finding)]


# 5. the way back


@pytest.mark.parametrize("settings", [SMALL, LARGE])
def test_an_answer_lost_after_landing_is_given_again_with_the_first_pointers(settings: Settings) -> None:
    """The commit landed and its answer was lost: who asks again gets the pointers of then, and nothing is doubled."""
    with World(11, settings=settings) as world:

        def story() -> None:
            furnish(world)
            strike = Strike("catalog.commit", Action.UNCERTAIN_LANDED, 2)

            def work(store: Store) -> list[str]:
                with store.writer("s/raw") as writer:
                    return [str(writer.write(b"%d" % i, key="a").result()) for i in range(4)]

            process = world.process("producer", faults=strike)
            pointers = process.call(work)
            process.close()
            assert strike.struck
            looker = world.process("looker")
            events = looker.call(lambda store: events_of(store, "s/raw"))
            assert [str(event.pointer) for event in events] == pointers
            assert [event.body for event in events] == [b"0", b"1", b"2", b"3"]
            looker.close()

        world.run(story)


def test_the_answer_to_a_change_lost_on_its_way_back_is_given_again() -> None:
    """A scale whose process died after it landed: asked again under its request id, it returns its first result."""
    with World(13) as world:

        def story() -> None:
            furnish(world)

            def scale(store: Store) -> list[str]:
                return [str(segment.id) for segment in store.streams.scale("s/raw", 3, request="r1")]

            dying = world.process("dying", faults=Strike("writing.commit", Action.CRASH_AFTER))
            with pytest.raises(ProcessCrashed):
                dying.call(scale)
            again = world.process("again")
            assert again.call(scale) == ["1.2", "1.3", "1.4"]
            assert again.call(lambda store: store.streams.get("s/raw").epoch) == 1
            again.close()

        world.run(story)


# 6. the consumer


@pytest.mark.parametrize("batches", [False, True])
def test_a_consumer_killed_and_resumed_at_its_position_misses_and_repeats_nothing(
    tmp_path: Path, batches: bool
) -> None:
    """It notes its position behind what it has done; a scale and a compaction in between do not matter."""
    with ab.connect(tmp_path, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw", scaling=3)
        written = 0
        done: list[bytes] = []
        position: str | None = None

        def write_some(count: int) -> None:
            nonlocal written
            with store.writer("s/raw") as writer:
                for _ in range(count):
                    writer.write(b"%d" % written, key=f"k{written % 7}")
                    written += 1

        for round_ in range(12):
            write_some(40)
            reader = store.reader("s/raw", start=ab.HEAD if position is None else position)
            steps: Any = reader.batches() if batches else reader
            for taken, step in enumerate(steps, 1):
                done += step.column("payload").to_pylist() if batches else [step.body]
                position = str(reader.position)
                if taken >= (1 if batches else 17 + round_):
                    break  # killed: no more than its noted position is left of it
            reader.close()
            if round_ % 3 == 0:
                store.streams.scale("s/raw", 2 + round_ % 4)
            if round_ % 4 == 0:
                store.compact(force=True)
        with store.reader("s/raw", start=position or ab.HEAD) as reader:
            done += [event.body for event in reader]
        assert sorted(map(int, done)) == list(range(written))
        for key in range(7):
            mine = [number for number in map(int, done) if number % 7 == key]
            assert mine == sorted(mine)


def test_a_consumer_that_fell_behind_a_truncation_or_a_deletion_is_reported(tmp_path: Path) -> None:
    with ab.connect(tmp_path, create=True) as store:
        store.scopes.create("s")
        store.streams.create("s/raw")
        with store.writer("s/raw") as writer:
            for i in range(EVENTS):
                writer.write(b"%d" % i)
        position = StreamCut.of(store.streams.get("s/raw").id, {ab.SegmentId(0, 0): 3})
        store.streams.truncate("s/raw", StreamCut.of(position.stream, {ab.SegmentId(0, 0): 5}))
        with pytest.raises(ab.errors.Truncated) as caught:
            list(store.reader("s/raw", start=position))
        assert caught.value.head == {"0.0": 5}
        follower = store.reader("s/raw", follow=True)
        assert next(iter(follower)).body == b"5"
        store.streams.delete("s/raw")
        with pytest.raises(StreamNotFound):
            list(follower)
        follower.close()
        with pytest.raises(Closed):
            next(iter(follower))
