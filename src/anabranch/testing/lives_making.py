"""What random lives make of streams: copies, joints, archives; on the store and on the model.

A verb draws what it acts on, and returns what it did and the stores it touched; None where nothing fits. One line in
`VERBS` has it take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.store.archives import verify_archive
from anabranch.streams.jobs.until import Until
from anabranch.testing.lives import STREAMS_MAX, Done, House, Keyed, Known, Lives, Verb, joined, large, require
from anabranch.testing.lives_changing import append_events


def copy(lives: Lives) -> Done:
    return _copy(lives, elsewhere=False)


def copy_independent(lives: Lives) -> Done:
    return _copy(lives, elsewhere=False, independent=True)


def copy_elsewhere(lives: Lives) -> Done:
    return _copy(lives, elsewhere=True)


def _copy(lives: Lives, *, elsewhere: bool, independent: bool = False) -> Done:
    house = lives.house()
    target = lives.other(house) if elsewhere else house
    known, name = lives.some(house), lives.free(target)
    if known is None or name is None:
        return None
    (part, bodies), to = lives.part(known), target.store if elsewhere else None
    request = f"copy {lives.done.total()}"
    copied = house.store.streams.copy(part, name, to=to, independent=independent, window=2, request=request)
    again = house.store.streams.copy(part, name, to=to, independent=independent, window=2, request=request)
    require(again == copied, f"{name} was copied again: {again}, not {copied}")
    target.copied(target.begin(name, bodies, mixed=known.mixed), house, copied)
    return f"{part} as {target.title} {name}", [house, target]


def follow(lives: Lives) -> Done:
    """A copy that follows its source until nothing new comes."""
    house = lives.house()
    target = lives.rng.choice(lives.houses)
    known, name = lives.some(house), lives.free(target)
    if known is None or name is None:
        return None
    to = None if target is house else target.store
    copied = house.store.streams.copy(known.name, name, to=to, follow=Until(idle_s=0), window=2)
    target.copied(target.begin(name, known.bodies, mixed=known.mixed, sealed=None), house, copied)
    return f"{known.name} as {target.title} {name}", [house, target]


def follow_on(lives: Lives) -> Done:
    """A copy that is paused, goes on when its source has more events and perhaps other segments, and follows just those;
    within a store over the same bytes or in some of its own."""
    house = lives.house()
    target = lives.rng.choice(lives.houses)
    known, name = lives.some(house, unsealed=True), lives.free(target)
    if known is None or name is None:
        return None
    events, independent = lives.new_events(), lives.rng.random() < 0.4
    until = Until(events=len(events))
    job = target.store.jobs.copy(house.store, known.name, name, follow=until, independent=independent, window=2)
    job.pause()
    for first in range(0, len(events), 3):
        append_events(known, known.name, events[first : first + 3])
        if lives.rng.random() < 0.3:
            house.store.streams.scale(known.name, lives.rng.randint(1, 3))
    copied = target.store.jobs.resume(job.id, source=house.store).wait()
    followed = job.row().followed
    require(followed == len(events), f"{name} followed {followed} events, not {len(events)}")
    target.copied(target.begin(name, known.bodies, mixed=known.mixed, sealed=None), house, copied)
    return f"{known.name} as {target.title} {name}, {len(events)} events", [house, target]


def append(lives: Lives) -> Done:
    return _append(lives, elsewhere=False)


def append_elsewhere(lives: Lives) -> Done:
    return _append(lives, elsewhere=True)


def _append(lives: Lives, *, elsewhere: bool) -> Done:
    house = lives.house()
    target = lives.other(house) if elsewhere else house
    source = lives.some(house)
    onto = lives.some(target, like=source)
    if source is None or onto is None or large([source, onto]):
        return None
    (part, bodies), old = lives.part(source), house.pointers_of(source)
    name = lives.address(onto)
    result = house.store.streams.append(part, name, to=target.store if elsewhere else None, window=2)
    onto.bodies, onto.mixed = joined(onto.bodies, bodies), True
    target.joined(house, old, result, bodies)
    onto.note_pointers()
    onto.note_cut()
    return f"{part} onto {target.title} {name}", [house, target]


def stitch(lives: Lives) -> Done:
    """Ranges of streams, one of them perhaps more than once; the sources may go, and the result take the name of one."""
    house, keep = lives.house(), lives.rng.random() < 0.6
    sources = several(lives, house)
    name = lives.free(house)
    if name is None or not sources:
        return None
    parts = [lives.part(known) for known in sources]
    bodies, old = joined(*(held for _, held in parts)), house.pointers_of(*sources)
    if not keep and lives.rng.random() < 0.5:
        name = sources[-1].name
    result = house.store.streams.stitch([part for part, _ in parts], into=name, keep_sources=keep)
    give_up(house, [] if keep else sources)
    house.begin(name, bodies, mixed=True)
    house.joined(house, old, result, bodies)
    told = ", ".join(str(part) for part, _ in parts)
    return f"{told} into {name}, sources {'stay' if keep else 'go'}", [house]


def stitch_elsewhere(lives: Lives) -> Done:
    house = lives.house()
    target = lives.other(house)
    sources, name = several(lives, house), lives.free(target)
    if name is None or not sources:
        return None
    parts, old = [lives.part(known) for known in sources], house.pointers_of(*sources)
    keep = lives.rng.random() < 0.6
    result = house.store.streams.stitch(
        [part for part, _ in parts], into=name, to=target.store, keep_sources=keep, window=2
    )
    give_up(house, [] if keep else sources)
    bodies = joined(*(held for _, held in parts))
    target.begin(name, bodies, mixed=True)
    target.joined(house, old, result, bodies)
    return f"{', '.join(str(part) for part, _ in parts)} into {target.title} {name}", [house, target]


def give_up(house: House, sources: Sequence[Known]) -> None:
    """These streams are gone, each of which may be named twice."""
    for known in dict.fromkeys(sources):
        house.end(known)


def several(lives: Lives, house: House) -> list[Known]:
    """One to three streams of one kind, perhaps the same one again; none where they are too large together."""
    first = lives.some(house)
    more = [lives.some(house, like=first) for _ in range(lives.rng.randint(0, 2))]
    found = [known for known in (first, *more) if known is not None]
    return [] if large(found) else found


def build(lives: Lives) -> Done:
    """Parts, one of which is written for it."""
    house = lives.house()
    sources, name = several(lives, house), lives.free(house)
    if name is None or not sources:
        return None
    held: list[Keyed] = []
    old = house.pointers_of(*sources)
    with house.store.streams.builder(name) as parts:
        for known in sources:
            part, bodies = lives.part(known)
            parts.add(part)
            held.append(bodies)
        events = lives.new_events()
        with parts.writer(scaling=lives.rng.randint(1, 2)) as writer:
            for key, body in events:
                sources[0].put(writer, key, body)
    house.begin(name, joined(*held, *({key: [body]} for key, body in events)), mixed=True)
    house.joined(house, old, parts.joined, joined(*held))
    return f"{name} of {len(sources)} parts and {len(events)} events", [house]


def copy_scope(lives: Lives) -> Done:
    """Aliases in the scope that lead to streams of it come along, to another store too."""
    house = lives.house()
    target = lives.rng.choice(lives.houses)
    to, ephemeral = lives.free_scope(target), lives.rng.random() < 0.5
    scope = lives.rng.choice(house.scopes)
    wanted = [known for known in house.streams if known.scope == scope and (ephemeral or not known.ephemeral)]
    if to is None or len(target.streams) + len(wanted) > STREAMS_MAX + 2:
        return None
    other = None if target is house else target.store
    found = house.store.streams.copy_scope(scope, to, to=other, ephemeral=ephemeral, window=2)
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


def archive(lives: Lives) -> Done:
    """An archive of a stream or range, imported into one of the stores."""
    return _archive(lives, attached=False)


def attach(lives: Lives) -> Done:
    """The same, attached where it lies."""
    return _archive(lives, attached=True)


def _archive(lives: Lives, *, attached: bool) -> Done:
    house, target = lives.house(), lives.house()
    known, name = lives.some(house), lives.free(target)
    if known is None or name is None:
        return None
    (part, bodies), place = lives.part(known), lives.place()
    house.store.streams.archive(part, place)
    flaws = list(verify_archive(place, runtime=house.store.runtime))
    require(not flaws, f"the archive of {part}: {flaws}")
    bring = target.store.streams.attach if attached else target.store.streams.import_archive
    result = bring(place, as_=name)
    ((called, copied),) = result.streams
    require(str(called) == name, f"{name} was imported as {called}")
    target.copied(target.begin(name, bodies, mixed=known.mixed, sealed=None), house, copied)
    same = house.store.streams.digest(part) == target.store.streams.digest(name)
    require(same, f"{part} and its archive {name} differ in their digests")
    return f"{part} as {target.title} {name}", [house, target]


def archive_scope(lives: Lives) -> Done:
    """An archive of a scope, imported as another; ephemeral streams stay behind, aliases come along."""
    house, target = lives.house(), lives.house()
    scope, to = lives.rng.choice(house.scopes), lives.free_scope(target)
    wanted = [known for known in house.streams if known.scope == scope and not known.ephemeral]
    if to is None or not wanted or len(target.streams) + len(wanted) > STREAMS_MAX + 2:
        return None
    place = lives.place()
    house.store.streams.archive_scope(scope, place)
    result = target.store.streams.import_archive(place, as_=to)
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
