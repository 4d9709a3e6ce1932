"""What a store that was restored or rebuilt must hold: what clients knew of each stream at its moment, and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.errors import CorruptStore
from anabranch.log.checking.check import Severity
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from tests.simulation.clients.judgement import held
from tests.simulation.inheritance import Holding, strange
from tests.simulation.ledger import Event, Fate, Ledger, told

if TYPE_CHECKING:
    from anabranch.store import Store
    from tests.simulation.clients.arena import Arena

__all__ = ["Found", "Moment", "contents", "copied_well"]

Events = Mapping[str, frozenset[Event]]  # by the first name of their stream
Found = Mapping[StreamId, Holding]


@dataclass
class Moment:
    """A moment between two others. `owed` are the events that were acknowledged before the first, of the streams
    that existed; `attempted` those that had been written before the second: None while it is not over, or if the
    client that knew it was killed."""

    owed: Events = field(default_factory=dict)
    attempted: Events | None = None

    @classmethod
    def begin(cls, arena: Arena) -> Moment:
        """Returns a moment after now."""
        return cls({label: each.owed for label, each in list(arena.ledgers.items()) if not each.gone})

    def over(self, arena: Arena) -> Moment:
        """Returns the moment, limited to before now."""
        attempted = {label: frozenset(ledger.fates) for label, ledger in list(arena.ledgers.items())}
        alive = {label: events for label, events in self.owed.items() if not arena.ledgers[label].gone}
        return Moment(alive, attempted)

    @classmethod
    def before(cls, arena: Arena) -> Moment:
        """Returns a moment with no lower bound, before now."""
        return cls().over(arena)


def contents(arena: Arena, store: Store) -> tuple[Found, list[str]]:
    """Returns what a store holds of the streams that have a ledger, and the errors of reading it and of its own
    check."""
    found: dict[StreamId, Holding] = {}
    wrong = [f"check: {finding}" for finding in store.check() if finding.severity is Severity.ERROR]
    for stream, name in _streams(store):
        if stream in arena.names:
            try:
                found[stream] = held(store, str(name))
            except CorruptStore as exc:
                wrong.append(f"{name} can't be read: {exc}")
    return found, wrong


def _streams(store: Store) -> list[tuple[StreamId, StreamName]]:
    with store.catalog.reading() as snapshot:
        return [(info.id, info.name) for info in snapshot.streams()]


def copied_well(arena: Arena, label: str, moment: Moment, found: Found, store: Store) -> list[str]:
    """Returns what is wrong with the content of a copy. To be called at the end, when all requests are answered;
    `store` is not used."""
    return [f"{label}: {text}" for text in _judge(arena, moment, found)]


def _judge(arena: Arena, moment: Moment, found: Found) -> Iterator[str]:
    ids = {label: stream for stream, label in arena.names.items()}
    gone = [label for label in moment.owed if not arena.ledgers[label].gone and ids[label] not in found]
    yield from told("streams are not in it", gone)
    for stream, holding in found.items():
        ledger = arena.ledgers[arena.names[stream]]
        owed = moment.owed.get(ledger.label, frozenset())
        attempted = None if moment.attempted is None else moment.attempted.get(ledger.label, frozenset())
        yield from _as_of(ledger, owed, attempted).judge(holding.stored, holding.heads)
        yield from told(f"{ledger.label}: not what it had taken over", _invented(ledger, holding))


def _as_of(ledger: Ledger, owed: frozenset[Event], attempted: frozenset[Event] | None) -> Ledger:
    """Returns the ledger as of the moment. Where an event lies, and that it was refused, does not depend on time."""
    then = Ledger(ledger.label)
    then.parts = ledger.parts
    for event in ledger.fates if attempted is None else attempted:
        refused = ledger.fates[event] is Fate.REFUSED
        then.fates[event] = Fate.REFUSED if refused else Fate.ACKED if event in owed else Fate.UNKNOWN
    then.pointers = {event: ledger.pointers[event] for event in then.fates if event in ledger.pointers}
    then.units = [unit for unit in ledger.units if all(event in then.fates for event in unit)]
    return then


def _invented(ledger: Ledger, holding: Holding) -> Iterator[str]:
    for pointer, payload in holding.stored:
        if ledger.inherits(pointer.segment, pointer.offset) is not None:
            why = strange(ledger, pointer.segment, pointer.offset, payload)
            if why is not None:
                yield f"{payload[:60]!r} at {pointer}, {why}"
