"""Random lives of many streams against lists: whatever is appended, scaled, copied, joined, renamed, truncated, deleted,
compacted and collected, each stream reads what the model says, and every pointer ever handed out means what it meant."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import anabranch as ab
from anabranch.errors import StreamNotFound, Truncated
from anabranch.model.ids import StreamId
from anabranch.runtime.ports import Runtime
from anabranch.runtime.settings import Settings
from anabranch.store import Store
from tests.store.helpers import by_key, events_of
from tests.store.kit import SECOND, HandClock

KEYS = "abcdef"
NAMES = [f"{scope}/{name}" for scope in "st" for name in "wxyz"]
Keyed = dict[str, list[bytes]]


@dataclass
class Model:
    """What a stream holds: for each key its bodies in order; the places it can be cut at, and what lay before them."""

    bodies: Keyed = field(default_factory=dict)
    sealed: bool = False
    cuts: list[tuple[ab.StreamCut, dict[str, int]]] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        return {key: len(bodies) for key, bodies in self.bodies.items()}


def between(bodies: Keyed, start: dict[str, int], end: dict[str, int]) -> Keyed:
    return {key: list(all_[start.get(key, 0) : end.get(key, 0)]) for key, all_ in bodies.items()}


def joined(*parts: Keyed) -> Keyed:
    found: Keyed = {}
    for part in parts:
        for key, bodies in part.items():
            found.setdefault(key, []).extend(bodies)
    return found


class Lives(RuleBasedStateMachine):
    """One store, and a model for each of its streams."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = HandClock()
        self.store: Store = ab.connect(
            "memory://", runtime=Runtime(clock=self.clock, settings=Settings(inline_bytes_max=200))
        )
        self.store.streams.create_scope("s")
        self.store.streams.create_scope("t")
        self.models: dict[str, Model] = {}
        self.ids: dict[str, StreamId] = {}
        self.pointers: dict[ab.EventPointer, bytes] = {}
        self.written = 0

    def teardown(self) -> None:
        try:
            self.free_everything()
        finally:
            self.store.close()

    def free_everything(self) -> None:
        """One stream after the other goes, and collection takes nothing that those left can see. When all are gone, it
        leaves no log, no extent and no blob."""
        for name in list(self.models):
            self.store.streams.delete(name)
            del self.models[name]
            self.collect()
            self.each_stream_reads_what_the_model_says_and_every_pointer_means_what_it_meant()
        for _ in range(4):
            self.collect()
        with self.store.catalog.reading() as reading:
            left = {table: len(reading.export(table)) for table in ("extents", "blobs", "logs", "spans", "schemas")}
            assert not any(left.values()), left
            assert not any(reading.pieces(kind) for kind in ("copied", "renamed", "former names", "lineage"))
        assert not [*self.store.blobs.list("commits/"), *self.store.blobs.list("history/")]

    # what is drawn

    def some(self, data: st.DataObject, *, unsealed: bool = False) -> str | None:
        names = sorted(name for name, model in self.models.items() if not (unsealed and model.sealed))
        return data.draw(st.sampled_from(names)) if names else None

    def free(self, data: st.DataObject) -> str | None:
        names = [name for name in NAMES if name not in self.models]
        return data.draw(st.sampled_from(names)) if names else None

    def part(self, data: st.DataObject, name: str) -> tuple[ab.StreamRange | str, Keyed]:
        """A stream, or a range of it between two cuts that were taken at some time, and what it holds."""
        model = self.models[name]
        if len(model.cuts) < 2 or data.draw(st.booleans()):
            return name, model.bodies
        first = data.draw(st.integers(0, len(model.cuts) - 1))
        second = data.draw(st.integers(first, len(model.cuts) - 1))
        (start, before), (end, after) = model.cuts[first], model.cuts[second]
        return ab.StreamRange(name, start, end), between(model.bodies, before, after)

    def begin(self, name: str, bodies: Keyed) -> None:
        self.ids[name] = self.store.streams.get(name).id
        self.models[name] = Model({key: list(each) for key, each in bodies.items()})
        self.note_cut(name, head=True)
        self.note_cut(name)

    def note_cut(self, name: str, *, head: bool = False) -> None:
        model = self.models[name]
        cut = self.store.streams.head(name) if head else self.store.streams.tail(name)
        model.cuts.append((cut, {} if head else model.counts()))

    def note_pointers(self, name: str) -> None:
        for event in events_of(self.store, name):
            self.pointers.setdefault(event.pointer, event.body)

    # what happens

    @initialize(segments=st.integers(1, 3))
    def first(self, segments: int) -> None:
        self.store.streams.create(NAMES[0], scaling=segments)
        self.begin(NAMES[0], {})

    @rule(data=st.data(), segments=st.integers(1, 3))
    def create(self, data: st.DataObject, segments: int) -> None:
        if name := self.free(data):
            self.store.streams.create(name, scaling=segments)
            self.begin(name, {})

    @rule(data=st.data(), keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8), long=st.booleans())
    def write(self, data: st.DataObject, keys: list[str], long: bool) -> None:
        name = self.some(data, unsealed=True)
        if name is None:
            return
        with self.store.writer(name) as writer:
            acks = []
            for key in keys:
                body = str(self.written).encode() + b" " * (150 if long else 0)
                self.written += 1
                self.models[name].bodies.setdefault(key, []).append(body)
                acks.append((body, writer.write(body, key=key)))
            for body, ack in acks:
                self.pointers[ack.result()] = body
        self.note_cut(name)

    @rule(data=st.data(), segments=st.integers(1, 4))
    def scale(self, data: st.DataObject, segments: int) -> None:
        if name := self.some(data, unsealed=True):
            self.store.streams.scale(name, segments)

    @rule(data=st.data())
    def seal(self, data: st.DataObject) -> None:
        if (name := self.some(data)) and data.draw(st.booleans()):
            self.store.streams.seal(name)
            self.models[name].sealed = True

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        name = self.some(data)
        if name is None:
            return
        model = self.models[name]
        at = data.draw(st.integers(0, len(model.cuts) - 1))
        cut, before = model.cuts[at]
        self.store.streams.truncate(name, cut)
        model.bodies = {key: bodies[before.get(key, 0) :] for key, bodies in model.bodies.items()}
        model.cuts = [
            (later, {key: count - before.get(key, 0) for key, count in counts.items()})
            for later, counts in model.cuts[at:]
        ]

    @rule(data=st.data())
    def copy(self, data: st.DataObject) -> None:
        source, target = self.some(data), self.free(data)
        if source is None or target is None:
            return
        part, bodies = self.part(data, source)
        copied = self.store.streams.copy(part, target)
        assert self.store.streams.copy(part, target) == copied
        self.begin(target, bodies)
        for event in events_of(self.store, target):
            old = event.pointer._replace(stream=copied.source)
            assert copied.pointer(old) == event.pointer
            assert self.store.fetch(old).body == event.body
        self.note_pointers(target)

    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        source, onto = self.some(data), self.some(data)
        if source is None or onto is None or self.large(source, onto):
            return
        part, bodies = self.part(data, source)
        bodies = {key: list(each) for key, each in bodies.items()}
        before = {pointer: body for pointer, body in self.pointers.items() if pointer.stream == self.ids[source]}
        result = self.store.streams.append(part, onto)
        self.models[onto].bodies = joined(self.models[onto].bodies, bodies)
        for old, body in before.items():
            for new in result.pointers(old):
                assert self.store.fetch(new).body == body
                self.pointers[new] = body
        self.note_cut(onto)

    @rule(data=st.data(), keep=st.booleans())
    def stitch(self, data: st.DataObject, keep: bool) -> None:
        sources = [name for _ in range(data.draw(st.integers(1, 3))) if (name := self.some(data))]
        target = self.free(data)
        if not sources or target is None or self.large(*sources):
            return
        parts = [self.part(data, name) for name in sources]
        bodies = joined(*(held for _, held in parts))
        if not keep and data.draw(st.booleans()):
            target = sources[-1]
        self.store.streams.stitch([part for part, _ in parts], into=target, keep_sources=keep)
        if not keep:
            for name in set(sources):
                del self.models[name]
        self.begin(target, bodies)
        self.note_pointers(target)

    def large(self, *names: str) -> bool:
        return sum(len(each) for name in names for each in self.models[name].bodies.values()) > 60

    @rule(data=st.data())
    def rename(self, data: st.DataObject) -> None:
        old, new = self.some(data), self.free(data)
        if old is not None and new is not None:
            self.store.streams.rename(old, new)
            self.models[new], self.ids[new] = self.models.pop(old), self.ids[old]

    @precondition(lambda self: len(self.models) > 1)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        if name := self.some(data):
            self.store.streams.delete(name)
            del self.models[name]

    @rule()
    def compact(self) -> None:
        self.store.compact(force=True)

    @rule()
    def collect(self) -> None:
        self.clock.pass_time(SECOND)
        self.store.collect(horizon_us=0)

    # what holds

    @invariant()
    def each_stream_reads_what_the_model_says_and_every_pointer_means_what_it_meant(self) -> None:
        readable: set[ab.EventPointer] = set()
        for name, model in self.models.items():
            events = events_of(self.store, name)
            assert by_key(events) == {key: bodies for key, bodies in model.bodies.items() if bodies}, name
            readable.update(event.pointer for event in events)
        living = {self.ids[name] for name in self.models}
        for pointer, body in self.pointers.items():
            if pointer in readable:
                assert self.store.fetch(pointer).body == body
            else:
                with pytest.raises(Truncated if pointer.stream in living else StreamNotFound):
                    self.store.fetch(pointer)

    @invariant()
    def the_store_is_sound(self) -> None:
        assert list(self.store.check()) == []


TestLives = Lives.TestCase
TestLives.settings = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
