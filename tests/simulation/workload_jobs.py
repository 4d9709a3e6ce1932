"""The verbs of the random workload that run jobs: repeats are left out, sources are in both stores, some jobs fail
half-way; on the stores and on the model.

A verb draws what it acts on, and returns what it did and the stores it changed; None if nothing fits. One line in
`VERBS` adds it to the workload.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from anabranch.transfer.jobs.remote_tasks import Bundle, carry
from anabranch.transfer.jobs.sources import InStore
from tests.simulation.workload import SECOND, Done, Keyed, Verb, Workload, joined, large, require
from tests.simulation.workload_algebra import give_up, several


def append_new(workload: Workload) -> Done:
    """Appends only the events that the other stream does not have."""
    house = workload.house()
    target = workload.rng.choice(workload.houses)
    source = workload.some(house)
    onto = workload.some(target, like=source)
    if source is None or onto is None or large([source, onto]):
        return None
    (part, bodies), to = workload.part(source), None if target is house else target.store
    name = workload.address(onto)
    result = house.store.streams.append(part, name, to=to, deduplicate=[source.payload], window=2)
    there = {body for each in onto.bodies.values() for body in each}
    new = {key: [body for body in dict.fromkeys(each) if body not in there] for key, each in bodies.items()}
    repeats = sum(len(bodies[key]) - len(new[key]) for key in bodies)
    require(result.repeats == repeats, f"{name}: {result.repeats} repeats were left out, not {repeats}")
    onto.bodies, onto.mixed = joined(onto.bodies, new), True
    onto.note_pointers()
    onto.note_cut()
    return f"{part} onto {target.title} {name} without {repeats} repeats", [house, target]


def deduplicate(workload: Workload) -> Done:
    """A stitch that leaves out events that repeat an event of a preferred source, or an earlier one."""
    house = workload.house()
    target = workload.rng.choice(workload.houses)
    sources, name = several(workload, house), workload.free(target)
    if name is None or not sources:
        return None
    parts, keep = [workload.part(known) for known in sources], workload.rng.random() < 0.6
    prefer = workload.rng.sample(range(len(parts)), workload.rng.randint(0, len(parts)))
    result = house.store.streams.stitch(
        [part for part, _ in parts],
        into=name,
        to=None if target is house else target.store,
        keep_sources=keep,
        deduplicate=[sources[0].payload],
        prefer=prefer,
        window=2,
    )
    give_up(house, [] if keep else sources)
    held = [bodies for _, bodies in parts]
    known = target.begin(name, without_repeats(held, prefer), mixed=True)
    repeats = sum(len(each) for bodies in held for each in bodies.values()) - known.size
    require(result.repeats == repeats, f"{name}: {result.repeats} repeats were left out, not {repeats}")
    told = ", ".join(str(part) for part, _ in parts)
    return f"{told} into {target.title} {name}, rather of {prefer}", [house, target]


def without_repeats(parts: Sequence[Keyed], prefer: Sequence[int]) -> Keyed:
    """Returns the parts in their order, with each body once: at its first place in the preferred part."""
    seen: set[bytes] = set()
    left = dict(enumerate(parts))
    for number in [*prefer, *(number for number in left if number not in prefer)]:
        left[number] = {
            key: [body for body in dict.fromkeys(bodies) if body not in seen] for key, bodies in left[number].items()
        }
        seen.update(body for bodies in left[number].values() for body in bodies)
    return joined(*left.values())


def stitch_of_both(workload: Workload) -> Done:
    """Sources of both stores, in any order, by one job."""
    house = workload.house()
    other = workload.other(house)
    own, name = workload.some(house), workload.free(house)
    theirs = workload.some(other, like=own)
    if own is None or theirs is None or name is None or large([own, theirs]):
        return None
    keep, sources = workload.rng.random() < 0.6, [own, theirs]
    workload.rng.shuffle(sources)
    parts = [workload.part(known) for known in sources]
    old = house.pointers_of(own) | other.pointers_of(theirs)
    asked = [InStore(known.house.store, part) for known, (part, _) in zip(sources, parts, strict=True)]
    result = house.store.streams.stitch(asked, into=name, keep_sources=keep, window=2)
    for known in [] if keep else sources:
        known.house.end(known)
    bodies = joined(*(held for _, held in parts))
    house.begin(name, bodies, mixed=True)
    house.joined(other, old, result, bodies)
    told = ", ".join(f"{known.house.title} {part}" for known, (part, _) in zip(sources, parts, strict=True))
    return f"{told} into {name}, sources {'stay' if keep else 'go'}", [house, other]


class HalfWay(Exception):
    """Raised to interrupt a job half-way."""


def fail(workload: Workload) -> Done:
    """A job fails half-way. What it moved survives a collection; then it is resumed, and everything is stored, or
    cancelled, and nothing is."""
    house = workload.house()
    target = workload.rng.choice(workload.houses)
    known, name = workload.some(house), workload.free(target)
    if known is None or name is None:
        return None
    part, bodies = workload.part(known)

    def half(bundles: Sequence[Bundle]) -> None:
        for bundle in bundles[::2]:
            carry(bundle, house.store.job_store, target.store.job_store)
        raise HalfWay

    job = target.store.jobs.copy(house.store, part, name, carrier=half)
    with suppress(HalfWay):
        job.wait()
    workload.clock.micros += SECOND
    target.store.collect(horizon_us=0)
    if workload.rng.random() < 0.5:
        job.cancel()
        return f"{part} as {target.title} {name}, cancelled", [house, target]
    copied = target.store.jobs.resume(job.id, source=house.store, window=2).wait()
    target.copied(target.begin(name, bodies, mixed=known.mixed), house, copied)
    return f"{part} as {target.title} {name}, gone on with", [house, target]


VERBS: Final[tuple[Verb, ...]] = (append_new, deduplicate, stitch_of_both, fail)
