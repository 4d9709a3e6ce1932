"""Watermarks: writers note times, start, close, fall silent and are killed; no mark is ever ahead of the noted
times."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.core.watermarks import Watermark
from anabranch.errors import AnabranchError, InvalidArgument
from tests.simulation.clients.arena import EXPECTED, KEYS, Arena, named
from tests.simulation.history import Kind, Outcome
from tests.simulation.ledger import Event, Ledger
from tests.simulation.record import place_of

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.writing.writer import Writer

__all__ = ["note", "observe"]

_STREAM: Final = "sim/timed"
_STEP_US: Final = 1_000  # average step of the noted times
_JUDGED: Final = 40  # number of marks that are judged


@dataclass(eq=False)
class _Noting:
    """One writer that notes times. `asked` is the last time that it requested to note, `heard_s` when it did so, by
    the world's clock. It counts from when its note was no less than the watermark until it begins to close."""

    asked: int
    heard_s: float
    counts: bool = False


@dataclass
class _Times:
    """What all clients that note or observe share. `marks` are the watermarks that were returned to any client, in
    the order of the answers; `late` has the events that a writer wrote while it may have been presumed idle."""

    ledger: Ledger
    writers: list[_Noting] = field(default_factory=list)
    marks: list[Watermark] = field(default_factory=list)
    times: dict[Event, int] = field(default_factory=dict)
    late: dict[Event, None] = field(default_factory=dict)


def note(arena: Arena, store: Store, name: str) -> None:
    """Writes events with rising times, and notes these times; closes in good order, or stops without closing."""
    for _ in arena.turns(store, 6):
        with suppress(*EXPECTED):
            times = _times(arena, store)
            writer = store.writer(times.ledger.stream)
            noting = _Noting(0, store.runtime.clock.monotonic())
            try:
                _noted(arena, store, times, writer, noting, f"{name}.{arena.serial()}")
            finally:
                noting.counts = False
                if arena.chance(0.7):
                    writer.close()  # else it stops silently, and times out


def observe(arena: Arena, store: Store, name: str) -> None:
    """Reads the watermark, and now and then scales the stream."""
    for _ in arena.turns(store, 3):
        with suppress(*EXPECTED, InvalidArgument):
            times = _times(arena, store)
            _look(arena, store, times)
            if arena.chance(0.1):
                store.streams.scale(times.ledger.stream, arena.rng.randrange(1, 4))
                arena.done["timed stream scaled"] += 1


def _times(arena: Arena, store: Store) -> _Times:
    made = _Times(Ledger(_STREAM))
    times = arena.shared("watermarks", lambda: made)
    if _STREAM not in arena.ledgers:
        info = store.streams.create(_STREAM, scaling=2, exist_ok=True)
        if _STREAM not in arena.ledgers:
            arena.adopt(times.ledger, info.id, active=False)
            arena.promises["watermarks keep their word"] = partial(_kept, times)
    return times


def _noted(arena: Arena, store: Store, times: _Times, writer: Writer, noting: _Noting, label: str) -> None:
    """Uses one writer. It notes before it writes, and never writes an event older than a mark it has read: so only a
    writer that was presumed idle can be late."""
    latest = 0 if not times.marks else times.marks[-1].time_us
    _note(store, writer, noting, latest + arena.rng.randrange(-5 * _STEP_US, 5 * _STEP_US))
    seen = _look(arena, store, times)
    if seen is not None and seen.time_us > noting.asked:
        _note(store, writer, noting, seen.time_us)
    noting.counts = True
    times.writers.append(noting)
    for _ in range(arena.rng.randrange(1, 10)):
        for _ in range(arena.rng.randrange(1, 5)):
            event = times.ledger.attempt(label, arena.rng.choice(KEYS))
            times.times[event] = time = noting.asked + arena.rng.randrange(3 * _STEP_US)
            times.late[event] = None  # until it is known to be in time
            heard = noting.heard_s
            events = (named(writer.stream_id, event.payload()),)
            operation = arena.recorder.begin(f"{label} {event}", Kind.APPEND, events=events)
            try:
                place = writer.write(event.payload(), key=event.key, time=time).result()
            except EXPECTED:
                times.ledger.unknown(event)
                raise
            times.ledger.acked(event, place)
            where = place_of(place.stream, place.segment)
            arena.recorder.end(operation, Outcome.OK, segment=where, offset=place.offset)
            if store.runtime.clock.monotonic() - heard < _idle_s() / 2:
                del times.late[event]
            arena.done["timed event"] += 1
        if arena.chance(0.1):
            store.runtime.tasks.sleep(arena.rng.random() * 2 * _idle_s())
        if store.runtime.clock.monotonic() - noting.heard_s > _idle_s() / 4:
            return  # it may have been presumed idle: the next one is a new writer
        _note(store, writer, noting, noting.asked + arena.rng.randrange(2 * _STEP_US))


def _idle_s() -> float:
    return limits.TIME_IDLE_US / 1e6


def _note(store: Store, writer: Writer, noting: _Noting, time: int) -> None:
    noting.asked, heard = max(noting.asked, time, 0), store.runtime.clock.monotonic()
    writer.note_time(noting.asked)
    noting.heard_s = heard


def _look(arena: Arena, store: Store, times: _Times) -> Watermark | None:
    """The mark is no less than earlier ones, and no more than what every writer that counts has noted."""
    before = times.marks[-1] if times.marks else None
    waited_for = [each for each in times.writers if each.counts]
    try:
        mark = store.watermarks.get(times.ledger.stream)
    except AnabranchError as exc:
        if not isinstance(exc, EXPECTED):
            raise
        return None
    if before is not None and (mark is None or mark.time_us < before.time_us):
        arena.violations.append(f"the watermark of {_STREAM} went from {before.time_us} back to {mark}")
    if mark is None:
        return None
    now = store.runtime.clock.monotonic()
    held = [each for each in waited_for if each.counts and now - each.heard_s < _idle_s() / 2]
    for each in held:
        if mark.time_us > each.asked:
            why = f"is at {mark.time_us}, though a writer has not noted more than {each.asked}"
            arena.violations.append(f"the watermark of {_STREAM} {why}")
    if not times.marks or mark.time_us > times.marks[-1].time_us:
        times.marks.append(mark)
        arena.done["watermark"] += 1
    return mark


def _kept(times: _Times, store: Store) -> Sequence[str]:
    """No event after a mark's cut is older than its time, except those of writers presumed idle; and the time window
    of a cut holds for its events."""
    wrong = []
    for mark in times.marks[-_JUDGED:]:
        with store.reader(times.ledger.stream, start=mark.cut) as reader:
            window = store.watermarks.window(times.ledger.stream, mark.cut)
            found = [(event.pointer, Event.parse(event.body)) for event in reader]
        for pointer, event in found:
            if event is None or event in times.late:
                continue
            time = times.times[event]
            if time < mark.time_us:
                wrong.append(f"behind the watermark {mark.time_us} lies {event} of {time}, at {pointer}")
            if window.lower_us is not None and time < window.lower_us:
                wrong.append(f"the time window at {mark.cut} begins at {window.lower_us}, and {event} is of {time}")
    return wrong[:5]
