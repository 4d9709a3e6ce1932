"""The verbs of the random workload that change streams: writing, retention, names, holders, upkeep; on the store and on
the model.

A verb draws what it acts on, and returns what it did and the stores it changed; None if nothing fits. One line in
`VERBS` adds it to the workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.errors import StreamNotFound
from anabranch.streams.retention.policy import RetainBytes, RetainFor, Retention
from tests.simulation.workload import SECOND, Done, Keyed, StreamModel, Verb, Workload, joined, require


def create(workload: Workload) -> Done:
    house = workload.house()
    if (name := workload.free(house)) is None:
        return None
    house.store.streams.create(name, scaling=workload.rng.randint(1, 3), **workload.columns())
    house.begin(name, {})
    return name, [house]


def write(workload: Workload) -> Done:
    house = workload.house()
    if (known := workload.some(house, unsealed=True)) is None:
        return None
    events, name = workload.new_events(), workload.address(known)
    append_events(known, name, events)
    return f"{len(events)} to {name}", [house]


def append_events(known: StreamModel, name: str, events: Sequence[tuple[str, bytes]]) -> None:
    """Writes keys and bodies to a stream, by one of its names."""
    with known.house.store.writer(name) as writer:
        acks = [(body, known.put(writer, key, body)) for key, body in events]
        for body, ack in acks:
            known.house.pointers[ack.result()] = body
    known.bodies = joined(known.bodies, *({key: [body]} for key, body in events))
    known.note_cut()


def scale(workload: Workload) -> Done:
    house, segments = workload.house(), workload.rng.randint(1, 4)
    if (known := workload.some(house, unsealed=True)) is None:
        return None
    house.store.streams.scale(workload.address(known), segments)
    return f"{known.name} to {segments}", [house]


def seal(workload: Workload) -> Done:
    house = workload.house()
    if (known := workload.some(house)) is None:
        return None
    house.store.streams.seal(workload.address(known))
    known.sealed = True
    return known.name, [house]


def truncate(workload: Workload) -> Done:
    house = workload.house()
    if (known := workload.some(house)) is None:
        return None
    at = workload.rng.randrange(len(known.cuts))
    cut, before = known.cuts[at]
    house.store.streams.truncate(workload.address(known), cut)
    known.bodies = {key: bodies[before.get(key, 0) :] for key, bodies in known.bodies.items()}
    known.cuts = [
        (later, {key: count - before.get(key, 0) for key, count in counts.items()}) for later, counts in known.cuts[at:]
    ]
    return f"{known.name} at {cut}", [house]


def retain_age(workload: Workload) -> Done:
    """By age: nothing younger is removed; everything older is, if no older event comes after a younger one."""
    house, age = workload.house(), workload.rng.randint(0, 20) * SECOND
    if (known := workload.some(house)) is None:
        return None
    old = {
        body for each in known.bodies.values() for body in each if workload.appended[body] < workload.clock.micros - age
    }
    gone = _retained(workload, known, RetainFor(age))
    require(gone <= old, f"{known.name}: {sorted(gone - old)} went, younger than {age} µs")
    require(known.mixed or gone == old, f"{known.name}: {sorted(old - gone)} stayed, older than {age} µs")
    return f"{known.name} for {age} µs", [house]


def retain_bytes(workload: Workload) -> Done:
    """By bytes: at least that much is kept."""
    house, size = workload.house(), workload.rng.choice([0, 100, 400, 1500])
    if (known := workload.some(house)) is None:
        return None
    if _retained(workload, known, RetainBytes(size)):
        left = house.store.cuts.distance(known.name).bytes
        require(left >= size, f"{known.name} holds {left} bytes, not {size}")
    return f"{known.name} {size} bytes", [house]


def _retained(workload: Workload, known: StreamModel, policy: Retention) -> set[bytes]:
    """Applies a policy, which removes the first events of each key. The model takes from the store which ones."""
    known.house.store.policies.retention(known.name, policy)
    known.house.store.retain(workload.address(known))
    known.house.store.policies.retention(known.name, None)
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


def rename(workload: Workload) -> Done:
    house = workload.house()
    known, name = workload.some(house), workload.free(house)
    if known is None or name is None:
        return None
    former, known.name = known.name, name
    house.store.streams.rename(former, name)
    return f"{former} to {name}", [house]


def move(workload: Workload) -> Done:
    house = workload.house()
    if (known := workload.some(house)) is None:
        return None
    former, scope = known.name, workload.rng.choice(house.scopes)
    name = f"{scope}/{former.partition('/')[2]}"
    if name in house.names():
        return None
    house.store.streams.move(former, scope)
    known.name = name
    return f"{former} to {name}", [house]


def alias(workload: Workload) -> Done:
    house = workload.house()
    known, name = workload.some(house), workload.free(house)
    if known is None or name is None:
        return None
    house.store.aliases.add(workload.address(known), name)
    house.aliases[name] = known
    return f"{name} of {known.name}", [house]


def unalias(workload: Workload) -> Done:
    house = workload.house()
    if not house.aliases:
        return None
    name = workload.rng.choice([*house.aliases])
    house.store.aliases.remove(name)
    del house.aliases[name]
    return name, [house]


def move_scope(workload: Workload) -> Done:
    house = workload.house()
    to = workload.free_scope(house)
    if to is None:
        return None
    scope = workload.rng.choice(house.scopes)
    house.store.scopes.rename(scope, to)
    house.scopes[house.scopes.index(scope)] = to

    def moved(name: str) -> str:
        return name.replace(f"{scope}/", f"{to}/")

    house.aliases = {moved(name): known for name, known in house.aliases.items()}
    for known in house.streams:
        known.name = moved(known.name)
    return f"{scope} to {to}", [house]


def delete_scope(workload: Workload) -> Done:
    house = workload.house()
    scope = workload.rng.choice(house.scopes)
    gone = [known for known in house.streams if known.scope == scope]
    if len(house.scopes) < 2 or len(gone) > 2:
        return None
    house.store.scopes.delete(scope, recursive=True)
    house.scopes.remove(scope)
    house.aliases = {name: known for name, known in house.aliases.items() if not name.startswith(f"{scope}/")}
    for known in gone:
        house.end(known)
    return f"{scope} with {len(gone)} streams", [house]


def create_scope(workload: Workload) -> Done:
    house = workload.house()
    if (scope := workload.free_scope(house)) is None:
        return None
    house.store.scopes.create(scope)
    house.scopes.append(scope)
    return scope, [house]


def delete(workload: Workload) -> Done:
    house = workload.house()
    if len(house.streams) < 2 or (known := workload.some(house)) is None:
        return None
    house.store.streams.delete(workload.address(known))
    house.end(known)
    return known.name, [house]


def ephemeral(workload: Workload) -> Done:
    house = workload.house()
    if (name := workload.free(house)) is None:
        return None
    held = house.store.ephemeral.create(name, scaling=workload.rng.randint(1, 2), **workload.columns())
    known = house.begin(name, {})
    known.ephemeral, known.held = True, [held]
    return name, [house]


def hold(workload: Workload) -> Done:
    house = workload.house()
    found = [known for known in house.streams if known.ephemeral]
    if not found:
        return None
    known = workload.rng.choice(found)
    known.held.append(house.store.ephemeral.hold(workload.address(known)))
    return known.name, [house]


def leave(workload: Workload) -> Done:
    """The last holder to leave deletes the stream, unless it was made permanent."""
    house = workload.house()
    found = [known for known in house.streams if known.held]
    if not found:
        return None
    known = workload.rng.choice(found)
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


def keep(workload: Workload) -> Done:
    house = workload.house()
    found = [known for known in house.streams if known.ephemeral]
    if not found:
        return None
    known = workload.rng.choice(found)
    house.store.ephemeral.keep(workload.address(known))
    known.ephemeral = False
    return known.name, [house]


def compact(workload: Workload) -> Done:
    """Compaction, which includes flattening."""
    house = workload.house()
    report = house.store.compact(force=True)
    workload.done["span flattened"] += report.spans
    return house.title, [house]


def collect(workload: Workload) -> Done:
    house = workload.house()
    workload.clock.micros += SECOND
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
