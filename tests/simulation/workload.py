"""Two stores, and a model of their streams as lists: the random workload of `algebra_command` compares the two.

The model has no segments, spans or logs. A stream is a list of bodies for each key; a place in it is the number of
events of each key before it. All bodies are distinct. A typed stream has the body in the column `body`, beside others,
for which the model remembers what was written with each body.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.catalog.port import Reading
from anabranch.catalog.state.ephemeral import EPHEMERAL
from anabranch.catalog.state.former_names import FORMER_NAME, FORMER_NAMES
from anabranch.catalog.state.kind import StateKind
from anabranch.catalog.state.lineage import COPIED, LINEAGE
from anabranch.catalog.tables import BY_NAME, Value
from anabranch.core.compaction import GONE
from anabranch.core.copy import CopyResult
from anabranch.core.stitch import JoinResult
from anabranch.errors import StreamNotFound, Truncated
from anabranch.model.cut import StreamCut
from anabranch.model.event import Event
from anabranch.model.ids import StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.stream_range import StreamRange
from anabranch.runtime.settings import Settings
from anabranch.store import Store, connect
from anabranch.streams.ephemeral.keep_alive import Held
from anabranch.testing.clock import ManualClock
from anabranch.transactions.transaction import Transaction
from tests.clocks import runtime_by

SECOND: Final = 1_000_000  # µs
STREAMS_MAX: Final = 7  # of a store
EVENTS_MAX: Final = 60  # of a stream that others are joined to
SCOPES: Final = "stuv"
KEYS: Final = "abcdef"

# Small, so that a few events reach them.
_LIMITS: Final = {
    "FLATTEN_SPANS_FORCED": 2,
    "JOB_RANGE_BYTES": 400,
    "JOB_BLOB_BYTES": 400,
    "JOB_BUNDLE_RANGES_MAX": 2,
    "SCOPE_PAGE": 2,
}

Keyed = dict[str, list[bytes]]
Counts = dict[str, int]


class Violation(AssertionError):
    """A store behaves differently from the model."""


def require(holds: bool, what: object) -> None:
    """Raises Violation unless it holds."""
    if not holds:
        raise Violation(str(what))


def between(bodies: Keyed, start: Counts, end: Counts) -> Keyed:
    """Returns the bodies between two places."""
    return {key: list(each[start.get(key, 0) : end.get(key, 0)]) for key, each in bodies.items()}


def joined(*parts: Keyed) -> Keyed:
    """Returns the parts, concatenated by key."""
    found: Keyed = {}
    for part in parts:
        for key, bodies in part.items():
            found.setdefault(key, []).extend(bodies)
    return found


@dataclass(eq=False)
class StreamModel:
    """A stream in the model. `mixed`: it may hold older events after younger ones. `cuts` are cuts that were taken
    at some time, in order, the head first, with the counts of events before them. `held` are this process's holds on
    it."""

    house: ModelStore
    name: str
    id: StreamId
    bodies: Keyed
    mixed: bool = False
    sealed: bool = False
    ephemeral: bool = False
    typed: bool = False
    cuts: list[tuple[StreamCut, Counts]] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)

    @property
    def scope(self) -> str:
        """Its scope."""
        return self.name.partition("/")[0]

    @property
    def payload(self) -> str:
        """The column of its bodies."""
        return "body" if self.typed else "payload"

    def put(self, writer: Writing, key: str, body: bytes) -> Any:
        """Writes an event, with a value in each of the columns that the stream has now."""
        if not self.typed:
            return writer.write(body, key=key)
        names = self.house.store.streams.get(self.id).schema.columns.names
        written = {name: len(self.house.written) for name in names if name not in ("k", "body")}
        self.house.written[body] = written
        return writer.write({"k": key, "body": body, **written})

    @property
    def size(self) -> int:
        """How many events it holds."""
        return sum(len(each) for each in self.bodies.values())

    def counts(self) -> Counts:
        """Returns the place after its last event."""
        return {key: len(bodies) for key, bodies in self.bodies.items()}

    def events(self) -> list[Event]:
        """Returns the events that the store reads."""
        with self.house.store.reader(self.name) as reader:
            return list(reader)

    def note_cut(self) -> None:
        """Adds its tail to the known cuts."""
        self.cuts.append((self.house.store.cuts.tail(self.name), self.counts()))

    def note_edges(self) -> None:
        """Makes its head and tail the only known cuts."""
        self.cuts = [(self.house.store.cuts.head(self.name), {})]
        self.note_cut()

    def note_pointers(self) -> None:
        """Records the pointer of each event."""
        for event in self.events():
            self.house.pointers[event.pointer] = self.house.body_of(event)


@dataclass(eq=False)
class ModelStore:
    """A store, its model, and every pointer that it ever returned with the event's body."""

    title: str
    store: Store
    scopes: list[str] = field(default_factory=list)
    streams: list[StreamModel] = field(default_factory=list)
    aliases: dict[str, StreamModel] = field(default_factory=dict)
    pointers: dict[EventPointer, bytes] = field(default_factory=dict)
    written: dict[bytes, dict[str, int]] = field(default_factory=dict)  # values of columns, by body

    def body_of(self, event: Event) -> bytes:
        """Returns the body of an event. Requires that its other columns hold what was written, and null otherwise."""
        if isinstance(event.body, bytes):
            return event.body
        body: bytes = event.body["body"]
        found = {name: value for name, value in event.body.items() if name not in ("k", "body")}
        wanted = {name: self.written[body].get(name) for name in found}
        require(found == wanted, f"{event.pointer} holds {found}, not {wanted}")
        return body

    def begin(self, name: str, bodies: Keyed, *, mixed: bool = False, sealed: bool | None = False) -> StreamModel:
        """Adds an existing stream to the model; requires that it is sealed or not as given (None: not checked)."""
        info = self.store.streams.get(name)
        if sealed is not None:
            require(info.sealed == sealed, f"{name} is sealed: {info.sealed}, not {sealed}")
        known = StreamModel(self, name, info.id, {key: list(each) for key, each in bodies.items()}, mixed, info.sealed)
        known.typed = not info.schema.raw
        self.streams.append(known)
        known.note_edges()
        known.note_pointers()
        return known

    def end(self, known: StreamModel) -> None:
        """Removes a deleted stream with its aliases; holders that still hold it leave without effect."""
        self.streams.remove(known)
        self.aliases = {name: each for name, each in self.aliases.items() if each is not known}
        for held in known.held:
            held.leave()

    def names(self) -> set[str]:
        """Returns all names in use."""
        return {known.name for known in self.streams} | set(self.aliases)

    def copied(self, copy: StreamModel, source: ModelStore, result: CopyResult) -> None:
        """Requires that the result maps each event of the source that is in the copy to its pointer there."""
        require(result.copy == copy.id, f"{copy.name} is {copy.id:016x}, not {result.copy:016x}")
        for event in copy.events():
            old = event.pointer._replace(stream=result.source)
            require(result.pointer(old) == event.pointer, f"{old} is mapped to {result.pointer(old)}")
            body = self.body_of(event)
            require(source.pointers.get(old) == body, f"{event.pointer} was {old}, another event")

    def joined(self, source: ModelStore, old: dict[EventPointer, bytes], result: JoinResult, parts: Keyed) -> None:
        """Requires that the result maps old pointers of the source to exactly one place for each event of the parts."""
        mapped: Counter[bytes] = Counter()
        for pointer, body in old.items():
            for new in result.pointers(pointer):
                found = self.body_of(self.store.fetch(new))
                require(found == body, f"{pointer} of {source.title} is at {new} now: {found!r}, not {body!r}")
                self.pointers[new] = body
                mapped[body] += 1
        wanted = Counter(body for bodies in parts.values() for body in bodies)
        require(mapped == wanted, f"pointers lead to {mapped}, and not to {wanted}")

    def pointers_of(self, *streams: StreamModel) -> dict[EventPointer, bytes]:
        """Returns the pointers of these streams."""
        ids = {known.id for known in streams}
        return {pointer: body for pointer, body in self.pointers.items() if pointer.stream in ids}

    def judge(self) -> None:
        """Requires that each stream reads as the model says, each pointer leads to its event, and `check` finds
        nothing."""
        streams = self.store.streams
        require(
            [each.name for each in self.store.scopes.list() if each.name[0] != "_"] == sorted(self.scopes),
            "other scopes",
        )
        names = {str(info.name) for info in streams.list()}
        require(names == {known.name for known in self.streams}, f"streams {sorted(names)}")
        aliases = {str(alias): str(name) for alias, name in self.store.aliases.of().items()}
        require(aliases == {name: known.name for name, known in self.aliases.items()}, f"aliases {aliases}")
        readable: set[EventPointer] = set()
        for known in self.streams:
            found: Keyed = {}
            for event in known.events():
                found.setdefault(str(event.key), []).append(self.body_of(event))
                readable.add(event.pointer)
            wanted = {key: bodies for key, bodies in known.bodies.items() if bodies}
            require(found == wanted, f"{known.name} reads {shown(found)}, not {shown(wanted)}")
            require(streams.get(known.name).sealed == known.sealed, f"{known.name} is sealed, or is not")
            require(
                self.store.ephemeral.is_ephemeral(known.name) == known.ephemeral,
                f"{known.name} is ephemeral, or is not",
            )
        living = {known.id for known in self.streams}
        for pointer, body in self.pointers.items():
            found_body = self.fetched(pointer, living)
            require(found_body == (body if pointer in readable else None), f"{pointer} is {found_body!r}, not {body!r}")
        flaws = list(self.store.check())
        require(not flaws, f"check finds {flaws}")

    def fetched(self, pointer: EventPointer, living: set[StreamId]) -> bytes | None:
        """Returns the body at a pointer; None if the store raises the right error for a removed event."""
        try:
            body = self.body_of(self.store.fetch(pointer))
        except Truncated:
            require(pointer.stream in living, f"{pointer} is truncated, though its stream is gone")
            return None
        except StreamNotFound:
            require(pointer.stream not in living, f"{pointer} has no stream, though that is there")
            return None
        return body

    def judge_storage(self) -> None:
        """Requires that everything stored is referenced by a span, and everything referenced is stored. To be called
        after a collection that may remove everything unreferenced."""
        with self.store.catalog.reading() as reading:
            rows: dict[str, list[Any]] = {
                table: list(_whole(reading, table)) for table in ("spans", "extents", "blobs")
            }
        for log, start, stop, _, encoding, *_ in rows["extents"]:
            seen = [s for s in rows["spans"] if s[3] == log and s[4] < stop and (s[5] is None or s[5] > start)]
            what = f"the extent {start} to {stop} of log {log}"
            require(bool(seen) or encoding == GONE, f"{what} is seen by nobody")
            require(not seen or encoding != GONE, f"{what} is gone, though it is seen")
        used = {row[3] for row in rows["extents"]}
        unused = [row[0] for row in rows["blobs"] if row[1] not in used]
        require(not unused, f"nothing lies in {unused}")
        keys = {row[0] for row in rows["blobs"]}
        found = [info.key for prefix in ("commits/", "history/") for info in self.store.blobs.list(prefix)]
        require(set(found) <= keys, f"{set(found) - keys} belong to nobody")

    def judge_empty(self) -> None:
        """Requires that nothing at all is stored."""
        with self.store.catalog.reading() as reading:
            tables = ("extents", "blobs", "logs", "spans", "segments", "schemas", "streams")
            left = {table: len(reading.export(table)) for table in tables}
            require(not any(left.values()), f"left behind: {left}")
            kinds: tuple[StateKind[Any, Any], ...] = (COPIED, FORMER_NAME, FORMER_NAMES, LINEAGE, EPHEMERAL)
            states = {kind.name: len(reading.states(kind)) for kind in kinds}
            require(not any(states.values()), f"left behind: {states}")
        blobs = [info.key for prefix in ("commits/", "history/") for info in self.store.blobs.list(prefix)]
        require(not blobs, f"left behind: {blobs}")


def _whole(reading: Reading, table: str) -> Iterator[tuple[Value, ...]]:
    """Yields all rows of a table."""
    page = reading.export(table)
    while page:
        yield from page
        page = reading.export(table, page[-1][: BY_NAME[table].key])


def shown(bodies: Keyed) -> dict[str, list[str]]:
    """Returns bodies without their padding."""
    return {key: [body.decode().strip() for body in each] for key, each in sorted(bodies.items())}


class Workload:
    """Two stores that share a clock, and the random draws of a run from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock()
        self.done: Counter[str] = Counter()
        self.appended: dict[bytes, int] = {}  # append times in µs
        self.written: dict[bytes, dict[str, int]] = {}
        self.transactions: list[Open] = []
        self.archives = 0
        self._limits = {name: getattr(limits, name) for name in _LIMITS}
        for name, value in _LIMITS.items():
            setattr(limits, name, value)
        self._folder = tempfile.TemporaryDirectory(prefix="anabranch-sim-")
        self.houses = [self._house("here"), self._house("there")]

    def _house(self, title: str) -> ModelStore:
        runtime = runtime_by(self.clock, settings=Settings(inline_bytes_max=200))
        house = ModelStore(title, connect("memory://", runtime=runtime), written=self.written)
        for scope in SCOPES[:2]:
            house.store.scopes.create(scope)
            house.scopes.append(scope)
        return house

    def close(self) -> None:
        """Removes everything."""
        for house in self.houses:
            house.store.close()
        self._folder.cleanup()
        for name, value in self._limits.items():
            setattr(limits, name, value)

    def place(self) -> Path:
        """Returns a place for a new archive."""
        self.archives += 1
        return Path(self._folder.name) / f"archive-{self.archives}"

    # random draws

    def house(self) -> ModelStore:
        """Returns a store; the first one twice as often."""
        return self.rng.choice([self.houses[0], *self.houses])

    def other(self, house: ModelStore) -> ModelStore:
        """Returns the other store."""
        return self.houses[house is self.houses[0]]

    def some(self, house: ModelStore, *, unsealed: bool = False, like: StreamModel | None = None) -> StreamModel | None:
        """Returns a stream of a store, preferably a non-empty one; with `like`, one that is raw or typed as that is."""
        found = [known for known in house.streams if not (unsealed and known.sealed)]
        found = [known for known in found if like is None or known.typed == like.typed]
        return self.rng.choices(found, [1 + min(known.size, 5) for known in found])[0] if found else None

    def free(self, house: ModelStore, scope: str | None = None) -> str | None:
        """Returns a name for a new stream, in an existing scope."""
        scopes = house.scopes if scope is None else [scope]
        names = [name for each in scopes for end in "wxyz" if (name := f"{each}/{end}") not in house.names()]
        return self.rng.choice(names) if names and len(house.streams) < STREAMS_MAX else None

    def free_scope(self, house: ModelStore) -> str | None:
        """Returns the name of a scope that does not exist."""
        scopes = [scope for scope in SCOPES if scope not in house.scopes]
        return self.rng.choice(scopes) if scopes else None

    def columns(self) -> dict[str, Any]:
        """Returns columns for a new stream: raw, or typed with small or large numbers."""
        if self.rng.random() < 0.5:
            return {}
        kind = self.rng.choice([pa.int32(), pa.int64()])
        return {"schema": pa.schema([("k", pa.string()), ("body", pa.binary()), ("n", kind)]), "key": "k"}

    def address(self, known: StreamModel) -> str:
        """Returns a name of the stream: its own, or an alias."""
        return self.rng.choice([known.name, *(name for name, each in known.house.aliases.items() if each is known)])

    def part(self, known: StreamModel) -> tuple[StreamRange | str, Keyed]:
        """Returns a stream, or a range of it between two known cuts, and its content."""
        name = self.address(known)
        if len(known.cuts) < 2 or self.rng.random() < 0.5:
            return name, {key: list(each) for key, each in known.bodies.items()}
        first, second = sorted(self.rng.choices(range(len(known.cuts)), k=2))
        (start, before), (end, after) = known.cuts[first], known.cuts[second]
        return StreamRange(name, start, end), between(known.bodies, before, after)

    def new_events(self) -> list[tuple[str, bytes]]:
        """Returns keys and bodies, some of which are too large to be inlined together."""
        found = []
        filling = b" " * (150 * self.rng.randrange(2))
        for key in self.rng.choices(KEYS, k=self.rng.randint(1, 8)):
            body = str(len(self.appended)).encode() + filling
            self.appended[body] = self.clock.micros
            found.append((key, body))
        return found


class Writing(Protocol):
    """Anything that writes events: a writer, that of a transaction, that of a builder's part."""

    def write(self, event: Any, *, key: Any = None) -> Any:
        """Writes one event."""
        ...


@dataclass(eq=False)
class Open:
    """An open transaction, and its events by stream."""

    house: ModelStore
    transaction: Transaction
    events: list[tuple[StreamModel, str, bytes]] = field(default_factory=list)


Done = tuple[str, list[ModelStore]] | None
"""What a verb did, and the stores it touched; None where nothing fitted."""

Verb = Callable[[Workload], Done]


def large(streams: Iterable[StreamModel]) -> bool:
    """True if these are too many events to be joined."""
    return sum(known.size for known in streams) > EVENTS_MAX
