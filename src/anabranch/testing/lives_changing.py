"""What changes streams in random lives: writing, retention, names, holders, upkeep; on the store and on the model.

A verb draws what it acts on, and returns what it did and the stores it touched; None where nothing fits. One line in
`VERBS` has it take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.errors import StreamNotFound
from anabranch.model.retention import RetainBytes, RetainFor, Retention
from anabranch.testing.lives import SECOND, Done, Keyed, Known, Lives, Verb, joined, require


def create(lives: Lives) -> Done:
    house = lives.house()
    if (name := lives.free(house)) is None:
        return None
    house.store.streams.create(name, scaling=lives.rng.randint(1, 3), **lives.columns())
    house.begin(name, {})
    return name, [house]


def write(lives: Lives) -> Done:
    house = lives.house()
    if (known := lives.some(house, unsealed=True)) is None:
        return None
    events, name = lives.new_events(), lives.address(known)
    append_events(known, name, events)
    return f"{len(events)} to {name}", [house]


def append_events(known: Known, name: str, events: Sequence[tuple[str, bytes]]) -> None:
    """Write keys and bodies to a stream, by one of its names."""
    with known.house.store.writer(name) as writer:
        acks = [(body, known.put(writer, key, body)) for key, body in events]
        for body, ack in acks:
            known.house.pointers[ack.result()] = body
    known.bodies = joined(known.bodies, *({key: [body]} for key, body in events))
    known.note_cut()


def scale(lives: Lives) -> Done:
    house, segments = lives.house(), lives.rng.randint(1, 4)
    if (known := lives.some(house, unsealed=True)) is None:
        return None
    house.store.streams.scale(lives.address(known), segments)
    return f"{known.name} to {segments}", [house]


def seal(lives: Lives) -> Done:
    house = lives.house()
    if (known := lives.some(house)) is None:
        return None
    house.store.streams.seal(lives.address(known))
    known.sealed = True
    return known.name, [house]


def truncate(lives: Lives) -> Done:
    house = lives.house()
    if (known := lives.some(house)) is None:
        return None
    at = lives.rng.randrange(len(known.cuts))
    cut, before = known.cuts[at]
    house.store.streams.truncate(lives.address(known), cut)
    known.bodies = {key: bodies[before.get(key, 0) :] for key, bodies in known.bodies.items()}
    known.cuts = [
        (later, {key: count - before.get(key, 0) for key, count in counts.items()}) for later, counts in known.cuts[at:]
    ]
    return f"{known.name} at {cut}", [house]


def retain_age(lives: Lives) -> Done:
    """By age: nothing younger goes, and where no older event lies behind a younger one, all that is older goes."""
    house, age = lives.house(), lives.rng.randint(0, 20) * SECOND
    if (known := lives.some(house)) is None:
        return None
    old = {body for each in known.bodies.values() for body in each if lives.appended[body] < lives.clock.micros - age}
    gone = _retained(lives, known, RetainFor(age))
    require(gone <= old, f"{known.name}: {sorted(gone - old)} went, younger than {age} µs")
    require(known.mixed or gone == old, f"{known.name}: {sorted(old - gone)} stayed, older than {age} µs")
    return f"{known.name} for {age} µs", [house]


def retain_bytes(lives: Lives) -> Done:
    """By bytes: what stays is at least as much."""
    house, size = lives.house(), lives.rng.choice([0, 100, 400, 1500])
    if (known := lives.some(house)) is None:
        return None
    if _retained(lives, known, RetainBytes(size)):
        left = house.store.streams.distance(known.name).bytes
        require(left >= size, f"{known.name} holds {left} bytes, not {size}")
    return f"{known.name} {size} bytes", [house]


def _retained(lives: Lives, known: Known, policy: Retention) -> set[bytes]:
    """What a policy lets go: of each key the first events. The model takes the store's word for which ones."""
    streams = known.house.store.streams
    streams.retention(known.name, policy)
    known.house.store.retain(lives.address(known))
    streams.retention(known.name, None)
    left: Keyed = {key: [] for key in known.bodies}
    for event in known.events():
        left[str(event.key)].append(known.house.body_of(event))
    gone: set[bytes] = set()
    for key, bodies in known.bodies.items():
        first = len(bodies) - len(left[key])
        require(first >= 0 and bodies[first:] == left[key], f"{known.name} lost the middle of {key}")
        gone.update(bodies[:first])
    known.bodies = left
    known.note_edges()
    return gone


def rename(lives: Lives) -> Done:
    house = lives.house()
    known, name = lives.some(house), lives.free(house)
    if known is None or name is None:
        return None
    former, known.name = known.name, name
    house.store.streams.rename(former, name)
    return f"{former} to {name}", [house]


def move(lives: Lives) -> Done:
    house = lives.house()
    if (known := lives.some(house)) is None:
        return None
    former, scope = known.name, lives.rng.choice(house.scopes)
    name = f"{scope}/{former.partition('/')[2]}"
    if name in house.names():
        return None
    house.store.streams.move(former, scope)
    known.name = name
    return f"{former} to {name}", [house]


def alias(lives: Lives) -> Done:
    house = lives.house()
    known, name = lives.some(house), lives.free(house)
    if known is None or name is None:
        return None
    house.store.streams.alias(lives.address(known), name)
    house.aliases[name] = known
    return f"{name} of {known.name}", [house]


def unalias(lives: Lives) -> Done:
    house = lives.house()
    if not house.aliases:
        return None
    name = lives.rng.choice([*house.aliases])
    house.store.streams.unalias(name)
    del house.aliases[name]
    return name, [house]


def move_scope(lives: Lives) -> Done:
    house = lives.house()
    to = lives.free_scope(house)
    if to is None:
        return None
    scope = lives.rng.choice(house.scopes)
    house.store.streams.move_scope(scope, to)
    house.scopes[house.scopes.index(scope)] = to

    def moved(name: str) -> str:
        return name.replace(f"{scope}/", f"{to}/")

    house.aliases = {moved(name): known for name, known in house.aliases.items()}
    for known in house.streams:
        known.name = moved(known.name)
    return f"{scope} to {to}", [house]


def delete_scope(lives: Lives) -> Done:
    house = lives.house()
    scope = lives.rng.choice(house.scopes)
    gone = [known for known in house.streams if known.scope == scope]
    if len(house.scopes) < 2 or len(gone) > 2:
        return None
    house.store.streams.delete_scope(scope, recursive=True)
    house.scopes.remove(scope)
    house.aliases = {name: known for name, known in house.aliases.items() if not name.startswith(f"{scope}/")}
    for known in gone:
        house.end(known)
    return f"{scope} with {len(gone)} streams", [house]


def create_scope(lives: Lives) -> Done:
    house = lives.house()
    if (scope := lives.free_scope(house)) is None:
        return None
    house.store.streams.create_scope(scope)
    house.scopes.append(scope)
    return scope, [house]


def delete(lives: Lives) -> Done:
    house = lives.house()
    if len(house.streams) < 2 or (known := lives.some(house)) is None:
        return None
    house.store.streams.delete(lives.address(known))
    house.end(known)
    return known.name, [house]


def ephemeral(lives: Lives) -> Done:
    house = lives.house()
    if (name := lives.free(house)) is None:
        return None
    held = house.store.streams.ephemeral(name, scaling=lives.rng.randint(1, 2), **lives.columns())
    known = house.begin(name, {})
    known.ephemeral, known.held = True, [held]
    return name, [house]


def hold(lives: Lives) -> Done:
    house = lives.house()
    found = [known for known in house.streams if known.ephemeral]
    if not found:
        return None
    known = lives.rng.choice(found)
    known.held.append(house.store.streams.hold(lives.address(known)))
    return known.name, [house]


def leave(lives: Lives) -> Done:
    """Who leaves last takes the stream along, unless it was made lasting."""
    house = lives.house()
    found = [known for known in house.streams if known.held]
    if not found:
        return None
    known = lives.rng.choice(found)
    known.held.pop().leave()
    if known.ephemeral and not known.held:
        house.end(known)
        try:
            house.store.streams.get(known.name)
        except StreamNotFound:
            pass
        else:
            require(False, f"{known.name} is there, though nobody holds it")
    return known.name, [house]


def keep(lives: Lives) -> Done:
    house = lives.house()
    found = [known for known in house.streams if known.ephemeral]
    if not found:
        return None
    known = lives.rng.choice(found)
    house.store.streams.keep(lives.address(known))
    known.ephemeral = False
    return known.name, [house]


def compact(lives: Lives) -> Done:
    """Flattens too."""
    house = lives.house()
    report = house.store.compact(force=True)
    lives.done["span flattened"] += report.spans
    return house.title, [house]


def collect(lives: Lives) -> Done:
    house = lives.house()
    lives.clock.micros += SECOND
    house.store.collect(horizon_us=0)
    return house.title, [house]


VERBS: Final[tuple[Verb, ...]] = (
    create,
    write,
    scale,
    seal,
    truncate,
    retain_age,
    retain_bytes,
    rename,
    move,
    alias,
    unalias,
    move_scope,
    delete_scope,
    create_scope,
    delete,
    ephemeral,
    hold,
    leave,
    keep,
    compact,
    collect,
)
