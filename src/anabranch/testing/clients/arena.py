"""What all clients share: the arena they meet in, what may happen to them, and what is wrong with a stream in the end."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from anabranch.errors import (
    AppendRefused,
    AppendUncertain,
    Conflict,
    LeaseExpired,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    Truncated,
)
from anabranch.log.check import Severity
from anabranch.model.cut import HEAD
from anabranch.model.ids import SegmentId
from anabranch.testing.history import Stored
from anabranch.testing.ledger import Event, Ledger, Sighting
from anabranch.testing.record import RecordedStore, Recorder, place_of

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["EXPECTED", "KEYS", "PAUSE_S", "Arena", "Client", "Promise", "checked", "judged", "kept", "named", "stored"]

KEYS: Final = ("a", "b", "c", "d", "e")
# What may happen to a client of a store whose other clients scale, seal and take over, and whose network fails.
EXPECTED: Final = (
    AppendRefused,
    AppendUncertain,
    Conflict,
    LeaseExpired,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    Truncated,
)
PAUSE_S: Final = 0.004

Client = Callable[["Arena", "Store", str], None]
Promise = Callable[["Store"], Sequence[str]]


@dataclass
class Arena:
    """What all clients share: chance, the streams' ledgers, and the sign to stop.

    `promises` holds what must be so in the end, by a name: each is asked in a fresh process, before and after all is
    compacted and collected, and returns what is wrong.
    """

    rng: random.Random
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    promises: dict[str, Promise] = field(default_factory=dict)
    stopping: bool = False
    recorder: Recorder = field(default_factory=lambda: Recorder(count().__next__))
    _serial: int = 0

    def serial(self) -> int:
        """A fresh number."""
        self._serial += 1
        return self._serial

    def client(self, store: Store, name: str) -> RecordedStore:
        """The store as this client uses it."""
        return RecordedStore(store, self.recorder, name, name_of=named)

    def turns(self, store: Store, pauses: float) -> Iterator[None]:
        """A client's turns until all stops, each behind a pause of up to so many `PAUSE_S`."""
        while not self.stopping:
            store.runtime.tasks.sleep(self.rng.random() * pauses * PAUSE_S)
            yield

    def pick(self) -> Ledger:
        """One of the streams that are written to."""
        return self.ledgers[self.rng.choice(self.active)]

    def new_stream(self, store: Store) -> str:
        """Create a stream, and have it written to from now on."""
        name = f"sim/stream{self.serial()}"
        store.streams.create(name, scaling=self.rng.randrange(1, 4))
        self.ledgers[name] = Ledger(name)
        self.active.append(name)
        return name

    def chance(self, part: float) -> bool:
        """True in about this part of all cases."""
        return self.rng.random() < part


def stored(store: Store, stream: str) -> list[Sighting]:
    """The whole stream, from head to tail."""
    with store.reader(stream, start=HEAD) as reader:
        return [Sighting(event.pointer, event.body) for event in reader]


def judged(store: Store, ledger: Ledger) -> list[str]:
    """What is wrong with one stream by its ledger."""
    heads = {segment.id: segment.head for segment in store.streams.view(ledger.stream).ordered}
    return ledger.judge(stored(store, ledger.stream), heads)


def named(stream: str, payload: bytes) -> str:
    """An event's name in a history: writers number their events anew in each stream."""
    return f"{stream} {Event.parse(payload)}"


def kept(store: Store, stream: str) -> dict[str, Stored]:
    """What each segment of the stream holds, as a history has it."""
    heads = {segment.id: segment.head for segment in store.streams.view(stream).ordered}
    events: dict[SegmentId, list[str]] = {segment: [] for segment in heads}
    for sighting in stored(store, stream):
        events[sighting.pointer.segment].append(named(stream, sighting.payload))
    return {place_of(stream, each): Stored(head, tuple(events[each])) for each, head in heads.items()}


def checked(store: Store) -> list[str]:
    """What is wrong with the store by its own account."""
    errors = [finding for finding in store.check() if finding.severity is Severity.ERROR]
    # Clocks differ here: what ran out for the collector may live on for the process that looks. Its holder is told.
    return [f"check: {finding}" for finding in errors if not finding.where.startswith("lease ")]
