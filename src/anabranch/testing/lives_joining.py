"""What goes with streams in random lives: columns that they gain, and transactions that are open meanwhile; on the store and
on the model.

A verb draws what it acts on, and returns what it did and the stores it touched; None where nothing fits. One line in
`VERBS` has it take part.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pyarrow as pa

from anabranch.errors import SchemaMismatch, StreamNotFound, StreamSealed
from anabranch.testing.lives import Done, House, Known, Lives, Open, Verb, joined, require

_NEW: Final = ("x", "y", "z")  # columns that streams gain
_OPEN_MAX: Final = 3


def evolve(lives: Lives) -> Done:
    """One more column, which is null in what was written before."""
    house = lives.house()
    found = [(known, new) for known in house.streams if known.typed for new in _new(known)]
    if not found:
        return None
    known, name = lives.rng.choice(found)
    columns = house.store.streams.get(known.id).schema.columns
    house.store.streams.evolve(lives.address(known), columns.append(pa.field(name, pa.int64())))
    return f"{known.name} gains {name}", [house]


def _new(known: Known) -> list[str]:
    present = known.house.store.streams.get(known.id).schema.columns.names
    return [name for name in _NEW if name not in present]


def mismatch(lives: Lives) -> Done:
    """Raw and typed streams can't be joined: that is refused, and nothing happens."""
    house = lives.house()
    raw, typed = ([known for known in house.streams if known.typed is kind] for kind in (False, True))
    name = lives.free(house)
    if not raw or not typed or name is None:
        return None
    pair = [lives.rng.choice(raw), lives.rng.choice(typed)]
    lives.rng.shuffle(pair)
    first, second = (lives.address(known) for known in pair)
    with suppress(SchemaMismatch):
        house.store.streams.append(first, second)
        require(False, f"{first} was appended to {second}")
    with suppress(SchemaMismatch):
        house.store.streams.stitch([first, second], into=name, keep_sources=False)
        require(False, f"{first} and {second} were stitched")
    return f"{first} and {second}", [house]


def begin_transaction(lives: Lives) -> Done:
    """It holds events for one or two streams, kept in the store or by its owner alone, while all else goes on."""
    house = lives.house()
    chosen = {known for _ in range(2) if (known := lives.some(house, unsealed=True)) is not None}
    if not chosen or len(lives.transactions) >= _OPEN_MAX:
        return None
    begun = Open(house, house.store.transaction(lease_s=10_000))
    for known in sorted(chosen, key=lambda each: each.name):
        writer = begun.transaction.writer(lives.address(known))
        for key, body in lives.new_events():
            known.put(writer, key, body)
            begun.events.append((known, key, body))
    if lives.rng.random() < 0.6:
        begun.transaction.flush()
    lives.transactions.append(begun)
    return f"{len(begun.events)} to {sorted(known.name for known in chosen)}", [house]


def end_transaction(lives: Lives) -> Done:
    """All of it is there, or nothing: as its owner says, unless a stream can't take it any more."""
    if not lives.transactions:
        return None
    open_ = lives.transactions.pop(lives.rng.randrange(len(lives.transactions)))
    house, streams = open_.house, dict.fromkeys(known for known, _, _ in open_.events)
    if lives.rng.random() < 0.2:
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
        lives.appended[body] = lives.clock.micros
        known.bodies = joined(known.bodies, {key: [body]})
    for known in streams:
        known.note_cut()
        known.note_pointers()
    return f"committed to {[known.name for known in streams]}", [house]


def _refusal(house: House, known: Known) -> type[Exception] | None:
    if known not in house.streams:
        return StreamNotFound
    return StreamSealed if known.sealed else None


def abort(open_: Open) -> None:
    """Nothing of it is ever there."""
    open_.transaction.abort()


VERBS: Final[tuple[Verb, ...]] = (evolve, mismatch, begin_transaction, end_transaction)
