"""The verbs of the random workload that make streams of streams: copies, joins, archives; on the store and on the
model.

A verb draws what it acts on, and returns what it did and the stores it changed; None if nothing fits. One line in
`VERBS` adds it to the workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.store.archives import verify_archive
from anabranch.transfer.jobs.follow_until import Until
from tests.simulation.workload import (
    STREAMS_MAX,
    Done,
    Keyed,
    ModelStore,
    StreamModel,
    Verb,
    Workload,
    joined,
    large,
    require,
)
from tests.simulation.workload_changes import append_events


def copy(workload: Workload) -> Done:
    return _copy(workload, elsewhere=False)


def copy_independent(workload: Workload) -> Done:
    return _copy(workload, elsewhere=False, independent=True)


def copy_elsewhere(workload: Workload) -> Done:
    return _copy(workload, elsewhere=True)


def _copy(workload: Workload, *, elsewhere: bool, independent: bool = False) -> Done:
    house = workload.house()
    target = workload.other(house) if elsewhere else house
    known, name = workload.some(house), workload.free(target)
    if known is None or name is None:
        return None
    (part, bodies), to = workload.part(known), target.store if elsewhere else None
    request = f"copy {workload.done.total()}"
    copied = house.store.streams.copy(part, name, to=to, independent=independent, window=2, request=request)
    again = house.store.streams.copy(part, name, to=to, independent=independent, window=2, request=request)
    require(again == copied, f"{name} was copied again: {again}, not {copied}")
    target.copied(target.begin(name, bodies, mixed=known.mixed), house, copied)
    return f"{part} as {target.title} {name}", [house, target]


def follow(workload: Workload) -> Done:
    """A copy that follows its source until nothing new comes."""
    house = workload.house()
    target = workload.rng.choice(workload.houses)
    known, name = workload.some(house), workload.free(target)
    if known is None or name is None:
        return None
    to = None if target is house else target.store
    copied = house.store.streams.copy(known.name, name, to=to, follow=Until(idle_s=0), window=2)
    target.copied(target.begin(name, known.bodies, mixed=known.mixed, sealed=None), house, copied)
    return f"{known.name} as {target.title} {name}", [house, target]


def follow_on(workload: Workload) -> Done:
    """A paused copy continues when its source has more events and perhaps other segments, and copies just those;
    within a store it shares the bytes or has some of its own."""
    house = workload.house()
    target = workload.rng.choice(workload.houses)
    known, name = workload.some(house, unsealed=True), workload.free(target)
    if known is None or name is None:
        return None
    events, independent = workload.new_events(), workload.rng.random() < 0.4
    until = Until(events=len(events))
    job = target.store.jobs.copy(house.store, known.name, name, follow=until, independent=independent, window=2)
    job.pause()
    for first in range(0, len(events), 3):
        append_events(known, known.name, events[first : first + 3])
        if workload.rng.random() < 0.3:
            house.store.streams.scale(known.name, workload.rng.randint(1, 3))
    copied = target.store.jobs.resume(job.id, source=house.store).wait()
    followed = job.row().followed
    require(followed == len(events), f"{name} followed {followed} events, not {len(events)}")
    target.copied(target.begin(name, known.bodies, mixed=known.mixed, sealed=None), house, copied)
    return f"{known.name} as {target.title} {name}, {len(events)} events", [house, target]


def append(workload: Workload) -> Done:
    return _append(workload, elsewhere=False)


def append_elsewhere(workload: Workload) -> Done:
    return _append(workload, elsewhere=True)


def _append(workload: Workload, *, elsewhere: bool) -> Done:
    house = workload.house()
    target = workload.other(house) if elsewhere else house
    source = workload.some(house)
    onto = workload.some(target, like=source)
    if source is None or onto is None or large([source, onto]):
        return None
    (part, bodies), old = workload.part(source), house.pointers_of(source)
    name = workload.address(onto)
    result = house.store.streams.append(part, name, to=target.store if elsewhere else None, window=2)
    onto.bodies, onto.mixed = joined(onto.bodies, bodies), True
    target.joined(house, old, result, bodies)
    onto.note_pointers()
    onto.note_cut()
    return f"{part} onto {target.title} {name}", [house, target]


def stitch(workload: Workload) -> Done:
    """Ranges of streams, one of them perhaps more than once; the sources may be deleted, and the result may take the
    name of one."""
    house, keep = workload.house(), workload.rng.random() < 0.6
    sources = several(workload, house)
    name = workload.free(house)
    if name is None or not sources:
        return None
    parts = [workload.part(known) for known in sources]
    bodies, old = joined(*(held for _, held in parts)), house.pointers_of(*sources)
    if not keep and workload.rng.random() < 0.5:
        name = sources[-1].name
    result = house.store.streams.stitch([part for part, _ in parts], into=name, keep_sources=keep)
    give_up(house, [] if keep else sources)
    house.begin(name, bodies, mixed=True)
    house.joined(house, old, result, bodies)
    told = ", ".join(str(part) for part, _ in parts)
    return f"{told} into {name}, sources {'stay' if keep else 'go'}", [house]


def stitch_elsewhere(workload: Workload) -> Done:
    house = workload.house()
    target = workload.other(house)
    sources, name = several(workload, house), workload.free(target)
    if name is None or not sources:
        return None
    parts, old = [workload.part(known) for known in sources], house.pointers_of(*sources)
    keep = workload.rng.random() < 0.6
    result = house.store.streams.stitch(
        [part for part, _ in parts], into=name, to=target.store, keep_sources=keep, window=2
    )
    give_up(house, [] if keep else sources)
    bodies = joined(*(held for _, held in parts))
    target.begin(name, bodies, mixed=True)
    target.joined(house, old, result, bodies)
    return f"{', '.join(str(part) for part, _ in parts)} into {target.title} {name}", [house, target]


def give_up(house: ModelStore, sources: Sequence[StreamModel]) -> None:
    """Removes these streams from the model; each may be named twice."""
    for known in dict.fromkeys(sources):
        house.end(known)


def several(workload: Workload, house: ModelStore) -> list[StreamModel]:
    """Returns one to three streams of one kind, perhaps with repetitions; none if they are too large together."""
    first = workload.some(house)
    more = [workload.some(house, like=first) for _ in range(workload.rng.randint(0, 2))]
    found = [known for known in (first, *more) if known is not None]
    return [] if large(found) else found


def build(workload: Workload) -> Done:
    """A builder's stream of several parts, one of which is written for it."""
    house = workload.house()
    sources, name = several(workload, house), workload.free(house)
    if name is None or not sources:
        return None
    held: list[Keyed] = []
    old = house.pointers_of(*sources)
    with house.store.streams.builder(name) as parts:
        for known in sources:
            part, bodies = workload.part(known)
            parts.add(part)
            held.append(bodies)
        events = workload.new_events()
        with parts.writer(scaling=workload.rng.randint(1, 2)) as writer:
            for key, body in events:
                sources[0].put(writer, key, body)
    house.begin(name, joined(*held, *({key: [body]} for key, body in events)), mixed=True)
    house.joined(house, old, parts.joined, joined(*held))
    return f"{name} of {len(sources)} parts and {len(events)} events", [house]


def copy_scope(workload: Workload) -> Done:
    """Aliases in the scope that lead to streams of it are copied too, also to another store."""
    house = workload.house()
    target = workload.rng.choice(workload.houses)
    to, ephemeral = workload.free_scope(target), workload.rng.random() < 0.5
    scope = workload.rng.choice(house.scopes)
    wanted = [known for known in house.streams if known.scope == scope and (ephemeral or not known.ephemeral)]
    if to is None or len(target.streams) + len(wanted) > STREAMS_MAX + 2:
        return None
    other = None if target is house else target.store
    found = house.store.scopes.copy(scope, to, to=other, ephemeral=ephemeral, window=2)
    target.scopes.append(to)
    aliases = dict(house.aliases)
    results = {copied.source: copied for copied in found}
    require(set(results) == {known.id for known in wanted}, f"copies of {scope}: {found}")
    for known in wanted:
        name = known.name.replace(f"{scope}/", f"{to}/")
        copied = target.begin(name, known.bodies, mixed=known.mixed)
        target.copied(copied, house, results[known.id])
        names = [each for each, held in aliases.items() if held is known and each.startswith(f"{scope}/")]
        target.aliases |= {each.replace(f"{scope}/", f"{to}/"): copied for each in names}
    return f"{scope} as {target.title} {to}, {len(wanted)} streams", [house, target]


def archive(workload: Workload) -> Done:
    """An archive of a stream or range, imported into one of the stores."""
    return _archive(workload, attached=False)


def attach(workload: Workload) -> Done:
    """An archive of a stream or range, attached in place."""
    return _archive(workload, attached=True)


def _archive(workload: Workload, *, attached: bool) -> Done:
    house, target = workload.house(), workload.house()
    known, name = workload.some(house), workload.free(target)
    if known is None or name is None:
        return None
    (part, bodies), place = workload.part(known), workload.place()
    house.store.archives.create(part, place)
    flaws = list(verify_archive(place, runtime=house.store.runtime))
    require(not flaws, f"the archive of {part}: {flaws}")
    bring = target.store.archives.attach if attached else target.store.archives.import_
    result = bring(place, as_=name)
    ((called, copied),) = result.streams
    require(str(called) == name, f"{name} was imported as {called}")
    target.copied(target.begin(name, bodies, mixed=known.mixed, sealed=None), house, copied)
    same = house.store.archives.digest(part) == target.store.archives.digest(name)
    require(same, f"{part} and its archive {name} differ in their digests")
    return f"{part} as {target.title} {name}", [house, target]


def archive_scope(workload: Workload) -> Done:
    """An archive of a scope, imported as another; ephemeral streams are left out, aliases included."""
    house, target = workload.house(), workload.house()
    scope, to = workload.rng.choice(house.scopes), workload.free_scope(target)
    wanted = [known for known in house.streams if known.scope == scope and not known.ephemeral]
    if to is None or not wanted or len(target.streams) + len(wanted) > STREAMS_MAX + 2:
        return None
    place = workload.place()
    house.store.archives.create_scope(scope, place)
    result = target.store.archives.import_(place, as_=to)
    target.scopes.append(to)
    results = {copied.source: copied for _, copied in result.streams}
    aliases = dict(house.aliases)
    for known in wanted:
        name = known.name.replace(f"{scope}/", f"{to}/")
        copied = target.begin(name, known.bodies, mixed=known.mixed, sealed=known.sealed)
        target.copied(copied, house, results[known.id])
        names = [each for each, held in aliases.items() if held is known and each.startswith(f"{scope}/")]
        target.aliases |= {each.replace(f"{scope}/", f"{to}/"): copied for each in names}
    return f"{scope} as {target.title} {to}, {len(wanted)} streams", [house, target]


VERBS: Final[tuple[Verb, ...]] = (
    copy,
    copy_independent,
    copy_elsewhere,
    follow,
    follow_on,
    append,
    append_elsewhere,
    stitch,
    stitch_elsewhere,
    build,
    copy_scope,
    archive,
    attach,
    archive_scope,
)
