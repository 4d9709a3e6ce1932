"""What all clients share: the arena they meet in, and what may happen to them."""

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
from anabranch.testing.inheritance import Joint
from anabranch.testing.ledger import Event, Ledger
from anabranch.testing.record import RecordedStore, Recorder

if TYPE_CHECKING:
    from anabranch.blobs.port import Blobs
    from anabranch.catalog.port import Catalog
    from anabranch.store import Store

__all__ = ["EXPECTED", "KEYS", "PAUSE_S", "Arena", "Asked", "Client", "Elsewhere", "Promise", "named"]

T = TypeVar("T")
KEYS: Final = ("a", "b", "c", "d", "e")
# What may happen to a client of a store whose other clients scale, seal and take over, and whose network fails.
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
# What refuses a change that was asked for, and leaves nothing behind.
_REFUSED: Final = (AlreadyExists, Conflict, InvalidCut, StreamNotFound, StreamSealed, Truncated)


@dataclass(frozen=True)
class Asked:
    """A change asked for under a request id: `act` asks, as often as need be, and `note` hears the answer. `refused`
    is called where nothing was changed."""

    act: Callable[[Store], Any]
    note: Callable[[Store, Any], None]
    refused: Callable[[], None] = lambda: None


class Elsewhere(Protocol):
    """Other places than the store's, as one process sees them: its calls there may fail like all others."""

    def place(self, name: str) -> Blobs:
        """A folder of the world, which outlives the process."""
        ...

    def memory(self) -> Blobs:
        """A new place that goes with the process."""
        ...

    def photograph(self) -> Blobs:
        """A copy of the store's blobs as they are at this moment, that goes with the process."""
        ...

    def catalog(self) -> Catalog:
        """A new catalog, empty, that goes with the process."""
        ...

    def open(self, catalog: Catalog, blobs: Blobs) -> Store:
        """Another store, with the keys of this one."""
        ...


def _nowhere(store: Store) -> Elsewhere:
    raise NotImplementedError("these clients need the simulated world")


@dataclass
class Arena:
    """What all clients share: chance, the streams' ledgers, and the sign to stop.

    `ledgers` are by the first name of their stream, `names` leads from a stream's id to it; the `active` ones are
    written to. `promises` holds what must be so in the end, by a name: each is asked in a fresh process, before and
    after all is compacted and collected, and returns what is wrong. `asked` has the requests without an answer: they
    are asked for again before all else is judged. `joints` has what streams took over from others, by request.
    `elsewhere` is where the process of a store may make others.

    In a rehearsal clients are threads: numbers are drawn at once, whoever goes through a table copies it first, and who
    decides by the `joints` that there may be another holds `deciding`. In the simulation nobody ever waits for that.
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
        """A fresh number."""
        return next(self._serials)

    def shared(self, what: str, make: Callable[[], T]) -> T:
        """What all clients of one kind note down together; `make` makes it for the first of them."""
        found: T = self._shared.setdefault(what, make())
        return found

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

    def pick_any(self) -> Ledger:
        """One of the streams that there are."""
        return self.rng.choice([each for each in list(self.ledgers.values()) if not each.gone])

    def new_stream(self, store: Store, *, active: bool = True) -> Ledger:
        """Create a stream, and have it written to from now on if it is to be active."""
        name = f"sim/stream{self.serial()}"
        made = store.streams.create(name, scaling=self.rng.randrange(1, 4))
        ledger = Ledger(name)
        self.adopt(ledger, made.id, active=active)
        return ledger

    def adopt(self, ledger: Ledger, stream: StreamId, *, active: bool) -> None:
        """A stream takes part from now on."""
        self.ledgers[ledger.label] = ledger
        self.names[stream] = ledger.label
        if active:
            self.active.append(ledger.label)

    def ask(self, store: Store, request: str, asked: Asked) -> bool:
        """Ask for a change until it is answered; True if it was made, False where it was refused or nobody can tell.
        Now and then it is asked for once more, which must change nothing."""
        self.asked[request] = asked
        for _ in range(_TRIES):
            try:
                answer = asked.act(store)
                asked.note(store, answer)
            except (AppendUncertain, StoreUnavailable):
                self.done["answer lost"] += 1
                store.runtime.tasks.sleep(self.rng.random() * PAUSE_S)
                continue
            except JobRunning:  # of a process that died, or may have: until it is silent
                store.runtime.tasks.sleep(limits.JOB_SILENT_US / 1_000_000)
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
        """Ask for all that is without an answer."""
        for request, asked in list(self.asked.items()):
            self.ask(store, request, asked)

    def bereft(self, ledger: Ledger, who: str, error: StreamNotFound) -> None:
        """An open writer or reader was told that its stream is not there, which no rename may do to it."""
        if not ledger.gone:
            self.violations.append(f"{who} lost {ledger.label}, called {ledger.stream} now: {error}")

    def chance(self, part: float) -> bool:
        """True in about this part of all cases."""
        return self.rng.random() < part


def named(stream: StreamId, payload: bytes) -> str:
    """An event's name in a history: a copy shows it under another name than its source."""
    return f"{stream:016x} {Event.parse(payload)}"
