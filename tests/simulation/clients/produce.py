"""Producers: several processes send the numbered appends of one client, as brokers do between which the client changes,
or take it over and go on where it stopped. Each append is stored once, in the order of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch.errors import AnabranchError, AppendUncertain, Fenced, OutOfSequence
from anabranch.writing.acknowledgement import EventRange
from tests.simulation.clients.arena import EXPECTED, KEYS, PAUSE_S, Arena, named
from tests.simulation.history import Kind
from tests.simulation.ledger import Event, Ledger

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.writing.producer import Producer, ProducerAck

__all__ = ["go_on", "produce"]

_NAMES: Final = ("client-1", "client-2")
_AHEAD: Final = 20  # appends without an answer
_LATER: Final = 1_000_000  # epochs
_BEHIND: Final = 4  # answered ones that are sent again


@dataclass
class Sender:
    """A client as all its brokers know it. `batches` are the events of each number, which never change; `answers` the first
    answer to each. A later `generation` counts from 0 again: from the epoch `later` on, once that is stored."""

    ledger: Ledger
    name: str
    epoch: int = 0
    generation: int = 0
    later: int | None = None
    batches: list[list[Event]] = field(default_factory=list)
    answers: dict[int, tuple[EventRange, ...]] = field(default_factory=dict)

    @property
    def answered(self) -> int:
        """The greatest number that was answered, -1 before the first."""
        return max(self.answers, default=-1)

    @property
    def known(self) -> tuple[int, int]:
        """What a producer that is opened from now on must know: the generation, and what was answered."""
        return self.generation, self.answered

    def opened(self, epoch: int) -> None:
        """Note that a producer was opened in this epoch: perhaps the later one has begun."""
        if self.later is not None and epoch >= self.later:
            self.later, self.generation = None, self.generation + 1
            self.batches, self.answers = [], {}
        self.epoch = max(self.epoch, epoch)


def produce(arena: Arena, store: Store, name: str) -> None:
    """Sends a client's next appends, and some of the last ones again, beside other brokers that do the same; now and then
    begins a later epoch."""
    for _ in arena.turns(store, 4):
        sender = _sender(arena)
        if arena.chance(0.05) and sender.later is None:
            sender.later = sender.epoch + _LATER  # so that no take-over reaches it
        epoch, known = sender.epoch if sender.later is None else sender.later, sender.known
        try:
            with store.producer(sender.ledger.stream, sender.name, epoch=epoch) as producer:
                arena.done["later epoch"] += epoch == sender.later
                sender.opened(epoch)
                if epoch == sender.epoch:
                    _judge_start(arena, sender, known, producer.last_sequence)
                    _send(arena, store, sender, producer)
        except EXPECTED:
            arena.done["producer refused"] += 1


def go_on(arena: Arena, store: Store, name: str) -> None:
    """Takes a client over, as its process does when it starts again, and goes on behind the last append."""
    for _ in arena.turns(store, 12):
        sender = _sender(arena)
        known = sender.known
        try:
            if arena.chance(0.5):
                with store.producer(sender.ledger.stream, sender.name) as producer:
                    if _taken_over(arena, sender, known, producer.epoch, producer.last_sequence):
                        _send(arena, store, sender, producer, numbered=False)
            else:
                _write(arena, store, sender, known)
        except EXPECTED:
            arena.done["take-over refused"] += 1


def _write(arena: Arena, store: Store, sender: Sender, known: tuple[int, int]) -> None:
    """The same by a writer, event by event: a number for each."""
    with store.writer(sender.ledger.stream, producer=sender.name) as writer:
        (info,) = [each for each in store.producers.list(sender.ledger.stream) if each.name == sender.name]
        # Perhaps another has taken over since: then this writer is refused.
        if info.last_sequence != writer.next_number - 1 or not _taken_over(
            arena, sender, known, info.epoch, writer.next_number - 1
        ):
            return
        for number in range(writer.next_number, writer.next_number + arena.rng.randrange(1, 8)):
            batch = _batch(arena, sender, number)
            if len(batch) == 1:
                writer.write(batch[0].payload(), key=batch[0].key)
            else:
                writer.write_batch(_table(batch))
            arena.done["event of a producer"] += 1
        writer.flush()


def _sender(arena: Arena) -> Sender:
    senders: dict[tuple[str, str], Sender] = arena.shared("senders", dict)
    ledger, name = arena.pick(), arena.rng.choice(_NAMES)
    return senders.setdefault((ledger.label, name), Sender(ledger, name))


def _taken_over(arena: Arena, sender: Sender, known: tuple[int, int], epoch: int, last: int) -> bool:
    """Note that the client goes on in this epoch; False if others have taken it over meanwhile."""
    if epoch <= sender.epoch:
        return False
    sender.opened(epoch)
    _judge_start(arena, sender, known, last)
    arena.done["take-over"] += 1
    return True


def _judge_start(arena: Arena, sender: Sender, known: tuple[int, int], last: int) -> None:
    generation, answered = known
    if sender.generation == generation and not answered <= last < len(sender.batches):
        arena.violations.append(
            f"{sender.name} of {sender.ledger.label} goes on after {last}, answered was {answered} "
            f"and sent {len(sender.batches) - 1}"
        )


def _batch(arena: Arena, sender: Sender, number: int) -> list[Event]:
    while len(sender.batches) <= number:
        label = f"{sender.name}.{sender.generation}@{sender.ledger.label}"
        events = [
            sender.ledger.attempt(label, key) for key in arena.rng.choices(KEYS, k=arena.rng.choice((1, 1, 3, 6)))
        ]
        sender.ledger.unit(events)
        stream = next(stream for stream, first in arena.names.items() if first == sender.ledger.label)
        unit = f"{label} {len(sender.batches)}"
        for event in events:
            sender.ledger.unknown(event)  # what one broker refuses another may have appended
            arena.recorder.begin(label, Kind.APPEND, events=(named(stream, event.payload()),), unit=unit)
        sender.batches.append(events)
    return sender.batches[number]


def _table(batch: Sequence[Event]) -> pa.Table:
    return pa.table({"key": [event.key for event in batch], "payload": [event.payload() for event in batch]})


def _send(arena: Arena, store: Store, sender: Sender, producer: Producer, *, numbered: bool = True) -> None:
    generation, batches = sender.generation, sender.batches
    last = producer.last_sequence
    start = max(0, last + 1 - arena.rng.randrange(_BEHIND)) if numbered else last + 1
    acks: list[tuple[int, list[Event], ProducerAck]] = []
    try:
        for number in range(start, start + arena.rng.randrange(1, 8)):
            if sender.batches is not batches or number - sender.answered > _AHEAD:
                break
            batch = _batch(arena, sender, number)
            acks.append((number, batch, producer.append(_table(batch), sequence=number if numbered else None)))
            if arena.chance(0.3):
                store.runtime.tasks.sleep(arena.rng.random() * PAUSE_S)
    finally:
        for number, batch, ack in acks:
            _settle(arena, sender, generation, number, batch, ack)


def _settle(
    arena: Arena, sender: Sender, generation: int, number: int, batch: Sequence[Event], ack: ProducerAck
) -> None:
    try:
        result = ack.result()
    except (Fenced, OutOfSequence):
        arena.done["append of an old owner"] += 1
        return
    except AppendUncertain:
        arena.done["append uncertain"] += 1
        return
    except AnabranchError:
        return
    for event in batch:
        sender.ledger.acked(event, None)
    arena.done["repeated append" if result.duplicate else "numbered append"] += 1
    if not result.ranges:
        return
    if result.events != len(batch):
        arena.violations.append(f"append {number} of {sender.name} holds {result.events} events, not {len(batch)}")
    if sender.generation == generation and sender.answers.setdefault(number, result.ranges) != result.ranges:
        first = sender.answers[number]
        arena.violations.append(
            f"append {number} of {sender.name} was answered by {first}, and by {result.ranges} then"
        )
