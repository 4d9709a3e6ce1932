"""A crash at every port call of an operation, before and after its effect; then a restart, and nothing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from anabranch.store import Store
from anabranch.testing.faults import Action, FaultAt, Faults
from tests.simulation.clients import checked, stored
from tests.simulation.crashes.calls import crashed_at, crashes, some_or_every_crash
from tests.simulation.ledger import Fate, Ledger
from tests.simulation.simulation import SETTINGS, tight_limits
from tests.simulation.world import Process, World

pytestmark = pytest.mark.sim

STREAM = "s/x"


@dataclass
class Story:
    """A store with some history, and what its clients know of it."""

    world: World
    ledger: Ledger = field(default_factory=lambda: Ledger(STREAM))

    def append(self, store: Store, writer: str, count: int, *, padding: int = 0) -> None:
        """Pipelined events of three keys, each noted once it is acknowledged."""
        with store.writer(STREAM) as open_writer:
            acks = []
            for i in range(count):
                event = self.ledger.attempt(writer, "abc"[i % 3])
                acks.append((event, open_writer.write(event.payload(padding), key=event.key)))
            for event, ack in acks:
                self.ledger.acked(event, ack.result())

    def append_unit(self, store: Store, writer: str) -> None:
        """An atomic batch over all segments."""
        events = [self.ledger.attempt(writer, key) for key in "abcdefgh"]
        self.ledger.unit(events)
        with store.writer(STREAM) as open_writer:
            table = pa.table({"key": [e.key for e in events], "payload": [e.payload(300) for e in events]})
            ack = open_writer.write_batch(table, atomic=True)
            for row, event in enumerate(events):
                self.ledger.acked(event, ack.pointer(row))

    def prepare(self, store: Store) -> None:
        """Inlined commits, commits in blobs, an old epoch, garbage of a deleted stream."""
        store.scopes.create("s")
        store.streams.create(STREAM, scaling=2)
        self.append(store, "early", 6)
        self.append(store, "early", 6, padding=400)
        store.streams.scale(STREAM, 1)
        self.append(store, "early", 4, padding=800)
        store.streams.create("s/garbage")
        with store.writer("s/garbage") as writer:
            writer.write(b"x" * 3000).result()
        store.streams.delete("s/garbage")

    def verify(self, store: Store) -> None:
        """All that was acknowledged is there, once, in order; the store is sound and goes on working."""
        sealed = store.streams.get(STREAM).sealed
        if not sealed:
            self.append(store, "late", 3)
        wrong = self.ledger.judge(stored(store, STREAM)) + checked(store)
        store.compact(force=True)
        store.runtime.tasks.sleep(1)
        for _ in range(3):
            store.collect()
            store.runtime.tasks.sleep(1)
        wrong += self.ledger.judge(stored(store, STREAM)) + checked(store)
        assert wrong == []


def append_events(story: Story, store: Store) -> None:
    story.append(store, "w", 5)
    story.append(store, "w", 5, padding=500)


def append_atomic_batches(story: Story, store: Store) -> None:
    story.append_unit(store, "unit")


def append_large_events(story: Story, store: Store) -> None:
    """Each of the large ones lies in a blob of its own, which is durable before its turn; a scale comes in between."""
    task = store.runtime.tasks.spawn("writer", lambda: story.append(store, "w", 3, padding=SETTINGS.event_bytes_max))
    store.streams.scale(STREAM, 2)
    story.append(store, "other", 2)
    task.join()


def compact_all(story: Story, store: Store) -> None:
    store.compact(force=True)


def collect_all(story: Story, store: Store) -> None:
    store.compact(force=True)
    for _ in range(2):
        store.runtime.tasks.sleep(1)
        store.collect()


def scale_up_and_down(story: Story, store: Store) -> None:
    store.streams.scale(STREAM, 3)
    story.append(store, "w", 4)
    first, second, _ = store.streams.view(STREAM).current
    store.streams.scale(STREAM, merge=[first.id, second.id])
    story.append(store, "w", 4)


def scale_under_a_writer(story: Story, store: Store) -> None:
    """The scale comes while the writer's events are on their way."""
    task = store.runtime.tasks.spawn("writer", lambda: story.append(store, "w", 9, padding=300))
    store.streams.scale(STREAM, 2)
    task.join()


def seal_stream(story: Story, store: Store) -> None:
    story.append(store, "w", 4)
    store.streams.seal(STREAM)


def close_store(story: Story, store: Store) -> None:
    """What was accepted is committed by closing."""
    writer = store.writer(STREAM)
    events = [story.ledger.attempt("w", "a") for _ in range(5)]
    acks = [writer.write(event.payload(100), key=event.key) for event in events]
    writer.close()
    for event, ack in zip(events, acks, strict=True):
        story.ledger.acked(event, ack.result())


Operation = Callable[[Story, Store], None]
OPERATIONS: tuple[Operation, ...] = (
    append_events,
    append_atomic_batches,
    append_large_events,
    compact_all,
    collect_all,
    scale_up_and_down,
    scale_under_a_writer,
    seal_stream,
    close_store,
)


def tell(operation: Operation, number: int, action: Action, seed: int = 1) -> Process | None:
    """One history: prepare, then the operation in a process that crashes at a call, then a restart and the verdict.

    Returns the process that ran the operation, None where it died while it opened.
    """
    actors: list[Process | None] = []
    with World(seed, settings=SETTINGS) as world, tight_limits():
        story = Story(world)

        def play() -> None:
            first = world.process("first")
            first.call(story.prepare)
            first.close()
            world.sleep(1)
            actors.append(crashed_at(world, number, action, lambda store: operation(story, store)))
            survivor = world.process("survivor")
            survivor.call(story.verify)
            survivor.close()

        try:
            world.run(play)
        except BaseException as exc:
            exc.add_note(f"{operation.__name__}: {action.value} at call {number}, seed {seed}")
            raise
        assert story.ledger.count(Fate.REFUSED) == 0
    return actors[0]


@some_or_every_crash
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)
def test_a_crash_at_any_call_loses_nothing(operation: Operation, every: bool) -> None:
    actor = tell(operation, 0, Action.PASS)
    assert actor is not None
    calls = list(actor.gate.calls)
    assert len(calls) > 3
    for number, action in crashes(calls, every=every):
        crashed = tell(operation, number, action)
        assert crashed is None or not crashed.alive


@pytest.mark.parametrize("action", [Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST])
def test_a_lost_answer_to_a_commit_is_resolved(action: Action) -> None:
    with World(1, settings=SETTINGS) as world, tight_limits():
        whole = FaultAt(1_000_000, action, "catalog.commit")
        resolve(world, whole)
    commits = whole.seen
    assert commits >= 2
    for number in range(1, commits + 1):
        with World(1, settings=SETTINGS) as world, tight_limits():
            faults = FaultAt(number, action, "catalog.commit")
            resolve(world, faults)
            assert faults.seen >= number


def resolve(world: World, faults: Faults) -> None:
    """Append through a commit whose answer is lost: every event is acknowledged all the same, and is there once."""
    story = Story(world)

    def play() -> None:
        first = world.process("first")
        first.call(story.prepare)
        actor = world.process("actor", faults=faults)
        actor.call(lambda store: append_events(story, store))
        assert story.ledger.count(Fate.ACKED) == len(story.ledger.fates)
        first.call(story.verify)

    world.run(play)
