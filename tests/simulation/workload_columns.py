"""The verbs of the random workload for columns that streams gain, and for transactions that stay open meanwhile; on the
store and on the model.

A verb draws what it acts on, and returns what it did and the stores it changed; None if nothing fits. One line in
`VERBS` adds it to the workload.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pyarrow as pa

from anabranch.errors import SchemaMismatch, StreamNotFound, StreamSealed
from tests.simulation.workload import Done, ModelStore, Open, StreamModel, Verb, Workload, joined, require

_NEW: Final = ("x", "y", "z")  # columns that streams gain
_OPEN_MAX: Final = 3


def evolve(workload: Workload) -> Done:
    """Adds a column, which is null in events written before."""
    house = workload.house()
    found = [(known, new) for known in house.streams if known.typed for new in _new(known)]
    if not found:
        return None
    known, name = workload.rng.choice(found)
    columns = house.store.streams.get(known.id).schema.columns
    house.store.streams.evolve(workload.address(known), columns.append(pa.field(name, pa.int64())))
    return f"{known.name} gains {name}", [house]


def _new(known: StreamModel) -> list[str]:
    present = known.house.store.streams.get(known.id).schema.columns.names
    return [name for name in _NEW if name not in present]


def mismatch(workload: Workload) -> Done:
    """Joining raw and typed streams is refused, without any effect."""
    house = workload.house()
    raw, typed = ([known for known in house.streams if known.typed is kind] for kind in (False, True))
    name = workload.free(house)
    if not raw or not typed or name is None:
        return None
    pair = [workload.rng.choice(raw), workload.rng.choice(typed)]
    workload.rng.shuffle(pair)
    first, second = (workload.address(known) for known in pair)
    with suppress(SchemaMismatch):
        house.store.streams.append(first, second)
        require(False, f"{first} was appended to {second}")
    with suppress(SchemaMismatch):
        house.store.streams.stitch([first, second], into=name, keep_sources=False)
        require(False, f"{first} and {second} were stitched")
    return f"{first} and {second}", [house]


def begin_transaction(workload: Workload) -> Done:
    """Begins a transaction with events for one or two streams, flushed to the store or kept by its owner, while
    everything else continues."""
    house = workload.house()
    chosen = {known for _ in range(2) if (known := workload.some(house, unsealed=True)) is not None}
    if not chosen or len(workload.transactions) >= _OPEN_MAX:
        return None
    begun = Open(house, house.store.transaction(lease_s=10_000))
    for known in sorted(chosen, key=lambda each: each.name):
        writer = begun.transaction.writer(workload.address(known))
        for key, body in workload.new_events():
            known.put(writer, key, body)
            begun.events.append((known, key, body))
    if workload.rng.random() < 0.6:
        begun.transaction.flush()
    workload.transactions.append(begun)
    return f"{len(begun.events)} to {sorted(known.name for known in chosen)}", [house]


def end_transaction(workload: Workload) -> Done:
    """All its events are stored, or none: as its owner decides, unless a stream can't take them any more."""
    if not workload.transactions:
        return None
    open_ = workload.transactions.pop(workload.rng.randrange(len(workload.transactions)))
    house, streams = open_.house, dict.fromkeys(known for known, _, _ in open_.events)
    if workload.rng.random() < 0.2:
        abort(open_)
        return "aborted", [house]
    refusals = tuple(filter(None, (_refusal(house, known) for known in streams)))
    if refusals:
        with suppress(*refusals):
            open_.transaction.commit()
            require(False, "a transaction was committed to a stream that can't take it")
        abort(open_)
        return f"refused: {', '.join(sorted({each.__name__ for each in refusals}))}", [house]
    open_.transaction.commit()
    for known, key, body in open_.events:
        workload.appended[body] = workload.clock.micros
        known.bodies = joined(known.bodies, {key: [body]})
    for known in streams:
        known.note_cut()
        known.note_pointers()
    return f"committed to {[known.name for known in streams]}", [house]


def _refusal(house: ModelStore, known: StreamModel) -> type[Exception] | None:
    if known not in house.streams:
        return StreamNotFound
    return StreamSealed if known.sealed else None


def abort(open_: Open) -> None:
    """Aborts: none of its events is ever visible."""
    open_.transaction.abort()


VERBS: Final[tuple[Verb, ...]] = (evolve, mismatch, begin_transaction, end_transaction)
