"""The arena: what all clients share, and the errors that clients expect."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from anabranch import limits
from anabranch.errors import (
    AlreadyExists,
    AppendRefused,
    AppendUncertain,
    Conflict,
    InvalidCut,
    JobRunning,
    LeaseExpired,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    Truncated,
)
from anabranch.model.ids import StreamId
from tests.simulation.inheritance import Joint
from tests.simulation.ledger import Event, Ledger
from tests.simulation.record import RecordedStore, Recorder

if TYPE_CHECKING:
    from anabranch.blobs.port import Blobs
    from anabranch.catalog.port import Catalog
    from anabranch.store import Store

__all__ = ["EXPECTED", "KEYS", "PAUSE_S", "Arena", "Asked", "Client", "Elsewhere", "Promise", "named"]

T = TypeVar("T")
KEYS: Final = ("a", "b", "c", "d", "e")
# Errors that a client may get because other clients scale, seal and take over, and the network fails.
EXPECTED: Final = (
    AppendRefused,
    AppendUncertain,
    Conflict,
    JobRunning,
    LeaseExpired,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    Truncated,
)
PAUSE_S: Final = 0.004

Client = Callable[["Arena", "Store", str], None]
Promise = Callable[["Store"], Sequence[str]]
_TRIES: Final = 12
# Errors that refuse a requested change without leaving any effect.
_REFUSED: Final = (AlreadyExists, Conflict, InvalidCut, StreamNotFound, StreamSealed, Truncated)


@dataclass(frozen=True)
class Asked:
    """A change requested under a request id: `act` makes the request, as often as needed, and `note` is called with
    the answer. `refused` is called if nothing was changed."""

    act: Callable[[Store], Any]
    note: Callable[[Store, Any], None]
    refused: Callable[[], None] = lambda: None


class Elsewhere(Protocol):
    """Storage other than the store's own, as one process sees it: calls to it may fail like all others."""

    def place(self, name: str) -> Blobs:
        """Returns a folder of the world, which outlives the process."""
        ...

    def memory(self) -> Blobs:
        """Returns new storage that is lost with the process."""
        ...

    def photograph(self) -> Blobs:
        """Returns a copy of the store's blobs as they are now, which is lost with the process."""
        ...

    def catalog(self) -> Catalog:
        """Returns a new, empty catalog, which is lost with the process."""
        ...

    def open(self, catalog: Catalog, blobs: Blobs) -> Store:
        """Opens another store, with the keys of this one."""
        ...


def _nowhere(store: Store) -> Elsewhere:
    raise NotImplementedError("these clients need the simulated world")


@dataclass
class Arena:
    """What all clients share: randomness, the streams' ledgers, and the signal to stop.

    `ledgers` are by the first name of their stream; `names` maps a stream's id to that name; the `active` ones are
    written to. `promises` holds what must be true at the end, by a name: each is checked in a fresh process, before and
    after everything is compacted and collected, and returns what is wrong. `asked` has the requests without an answer,
    which are repeated before anything is judged. `joints` has what streams took over from others, by request.
    `elsewhere` gives other storage to the process of a store.

    In a rehearsal clients are threads: numbers are drawn atomically, a table is copied before iterating over it, and a
    client that decides by the `joints` whether there may be another holds `deciding`. In the simulation no client ever
    waits for that lock.
    """

    rng: random.Random
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    promises: dict[str, Promise] = field(default_factory=dict)
    asked: dict[str, Asked] = field(default_factory=dict)
    joints: dict[str, list[Joint]] = field(default_factory=dict)
    names: dict[StreamId, str] = field(default_factory=dict)
    elsewhere: Callable[[Store], Elsewhere] = _nowhere
    deciding: Lock = field(default_factory=Lock)
    stopping: bool = False
    recorder: Recorder = field(default_factory=lambda: Recorder(count().__next__))
    _shared: dict[str, Any] = field(default_factory=dict)
    _serials: Iterator[int] = field(default_factory=lambda: count(1))

    def serial(self) -> int:
        """Returns a fresh number."""
        return next(self._serials)

    def shared(self, what: str, make: Callable[[], T]) -> T:
        """Returns the record that all clients of one kind share; `make` creates it for the first of them."""
        found: T = self._shared.setdefault(what, make())
        return found

    def client(self, store: Store, name: str) -> RecordedStore:
        """Returns the store wrapped so that this client's operations are recorded."""
        return RecordedStore(store, self.recorder, name, name_of=named)

    def turns(self, store: Store, pauses: float) -> Iterator[None]:
        """Yields a client's turns until the run stops, each after a pause of up to `pauses` times `PAUSE_S`."""
        while not self.stopping:
            store.runtime.tasks.sleep(self.rng.random() * pauses * PAUSE_S)
            yield

    def pick(self) -> Ledger:
        """Returns one of the streams that are written to."""
        return self.ledgers[self.rng.choice(self.active)]

    def pick_any(self) -> Ledger:
        """Returns one of the existing streams."""
        return self.rng.choice([each for each in list(self.ledgers.values()) if not each.gone])

    def new_stream(self, store: Store, *, active: bool = True) -> Ledger:
        """Creates a stream, which is written to from now on if `active`."""
        name = f"sim/stream{self.serial()}"
        made = store.streams.create(name, scaling=self.rng.randrange(1, 4))
        ledger = Ledger(name)
        self.adopt(ledger, made.id, active=active)
        return ledger

    def adopt(self, ledger: Ledger, stream: StreamId, *, active: bool) -> None:
        """Adds a stream to the run."""
        self.ledgers[ledger.label] = ledger
        self.names[stream] = ledger.label
        if active:
            self.active.append(ledger.label)

    def ask(self, store: Store, request: str, asked: Asked) -> bool:
        """Requests a change until it is answered. True if it was made, False if it was refused or the outcome is
        unknown. Now and then repeats an answered request, which must change nothing."""
        self.asked[request] = asked
        for _ in range(_TRIES):
            try:
                answer = asked.act(store)
                asked.note(store, answer)
            except (AppendUncertain, StoreUnavailable):
                self.done["answer lost"] += 1
                store.runtime.tasks.sleep(self.rng.random() * PAUSE_S)
                continue
            except JobRunning:  # of a process that died, or may have: wait until it counts as silent
                store.runtime.tasks.sleep(limits.JOB_HEARTBEAT_TIMEOUT_US / 1_000_000)
                continue
            except _REFUSED:
                asked.refused()
                del self.asked[request]
                return False
            del self.asked[request]
            if self.chance(0.3):
                self._once_more(store, request, asked, answer)
            return True
        return False

    def _once_more(self, store: Store, request: str, asked: Asked, answer: Any) -> None:
        try:
            again = asked.act(store)
        except (AppendUncertain, JobRunning, StoreUnavailable):
            return
        if again != answer:
            self.violations.append(f"{request} was answered by {answer} first and by {again} then")

    def settle(self, store: Store) -> None:
        """Repeats all requests without an answer."""
        for request, asked in list(self.asked.items()):
            self.ask(store, request, asked)

    def bereft(self, ledger: Ledger, who: str, error: StreamNotFound) -> None:
        """An open writer or reader got the error that its stream does not exist, which no rename may cause."""
        if not ledger.gone:
            self.violations.append(f"{who} lost {ledger.label}, called {ledger.stream} now: {error}")

    def chance(self, part: float) -> bool:
        """True with this probability."""
        return self.rng.random() < part


def named(stream: StreamId, payload: bytes) -> str:
    """Returns an event's name in a history: it differs between a copy and its source."""
    return f"{stream:016x} {Event.parse(payload)}"
