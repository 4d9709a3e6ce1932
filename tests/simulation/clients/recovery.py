"""Backups and manifests: a store made from one elsewhere holds what existed at its moment, and reports what it
lacks, while all other clients continue."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.errors import NotFound
from anabranch.log.recovery.backup import backup, fetch_blobs, newest_backup
from anabranch.log.recovery.rebuild import RebuildReport, rebuild
from anabranch.log.recovery.reload import reload
from anabranch.model.ids import LogId
from tests.simulation.clients.arena import EXPECTED, Arena
from tests.simulation.clients.recovery_judgement import Found, Moment, contents, copied_well

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["back_up", "export", "made_anew"]

_COPIES_MAX: Final = 4  # of each kind, so that judging stays fast
_FOR_EVER: Final = 1 << 62


# backups


@dataclass
class _Place:
    """A place of backups. `owed` was acknowledged before the last backup that is known to be complete; the newest
    existing one was taken before `latest` was over, if that is known."""

    name: str
    owed: Moment = field(default_factory=Moment)
    latest: Moment = field(default_factory=Moment)
    seen: bool = False

    @property
    def moment(self) -> Moment:
        """When the existing backup was taken."""
        return Moment(self.owed.owed, self.latest.attempted)


def back_up(arena: Arena, store: Store, name: str) -> None:
    """Backs up to places of the world, several times to each; restores some at once, and all at the end."""
    for _ in arena.turns(store, 12):
        if arena.done["place of backups"] >= _COPIES_MAX:
            continue
        place = _Place(f"backup{arena.serial()}")
        arena.done["place of backups"] += 1
        for _ in range(arena.rng.randrange(1, 4)):
            with suppress(*EXPECTED):
                _back_up(arena, store, place)
        if place.name in arena.promises and arena.chance(0.5):
            with suppress(*EXPECTED):
                found = _restored(arena, store, place)
                moment = place.moment
                label = f"{place.name} restored by {name}"
                arena.promises[label] = partial(copied_well, arena, label, moment, found)


def _back_up(arena: Arena, store: Store, place: _Place) -> None:
    began = Moment.begin(arena)
    place.latest = Moment()
    try:
        backup(store.catalog, store.blobs, arena.elsewhere(store).place(place.name), store.runtime)
    except EXPECTED:
        place.latest = began.over(arena)  # it may have been completed all the same
        raise
    place.owed = place.latest = began.over(arena)
    arena.promises[place.name] = partial(_restorable, arena, place)
    arena.done["backup"] += 1


def _restorable(arena: Arena, place: _Place, store: Store) -> list[str]:
    """Judges the backup, once: it no longer changes."""
    if place.seen:
        return []
    place.seen = True
    return copied_well(arena, place.name, place.moment, _restored(arena, store, place), store)


def _restored(arena: Arena, store: Store, place: _Place) -> Found:
    there = arena.elsewhere(store)
    source, blobs, catalog = there.place(place.name), there.memory(), there.catalog()
    manifest = newest_backup(source)
    fetch_blobs(source, manifest, blobs)
    reload(catalog, source, manifest, store.runtime)
    found, wrong = _look(arena, store, catalog, blobs)
    arena.violations += [f"{place.name} restored: {text}" for text in wrong]
    arena.done["restore"] += 1
    return found


def _look(arena: Arena, store: Store, catalog: Catalog, blobs: Blobs) -> tuple[Found, list[str]]:
    fresh = arena.elsewhere(store).open(catalog, blobs)
    try:
        return contents(arena, fresh)
    finally:
        fresh.close()


# manifests


@dataclass(frozen=True)
class Export:
    """A manifest that is known to be complete; its writing began and ended at moments of the recorder's clock."""

    began: int
    ended: int
    moment: Moment


def _exports(arena: Arena) -> dict[str, Export]:
    """Returns the manifests that are known to be complete, by folder."""
    return arena.shared("exports", dict)


def export(arena: Arena, store: Store, name: str) -> None:
    """Exports manifests."""
    for _ in arena.turns(store, 12):
        with suppress(*EXPECTED):
            began, moment = arena.recorder.moment(), Moment.begin(arena)
            folder = store.export_manifest().folder
            _exports(arena)[folder] = Export(began, arena.recorder.moment(), moment.over(arena))
            arena.done["export"] += 1


def made_anew(arena: Arena, store: Store, name: str) -> None:
    """Rebuilds catalogs, each over the blobs as of one moment, as if the catalog were lost then."""
    for _ in arena.turns(store, 16):
        if arena.done["rebuild"] < _COPIES_MAX:
            with suppress(*EXPECTED, NotFound):
                _rebuild(arena, store, f"rebuild{arena.serial()} by {name}")


def _rebuild(arena: Arena, store: Store, label: str) -> None:
    there = arena.elsewhere(store)
    finished = dict(_exports(arena))
    until = Moment.before(arena)
    blobs, catalog = there.photograph(), there.catalog()
    committed = _committed(store)
    report = rebuild(catalog, blobs, store.runtime)
    used = finished.get(report.manifest)
    wrong = [f"{key}, which the manifest names: {why}" for key, why in report.broken.items()]
    if used is not None:
        later = [each for each in finished.values() if each.began > used.ended]
        wrong += ["a later manifest is there"] * bool(later)
    wrong += _unsaid(catalog, blobs, committed, report)
    fresh = there.open(catalog, blobs)
    try:
        fresh.collect()
        wrong += [
            f"{each.key} was collected, though nobody decided on it" for each in report.newer if _gone(blobs, each.key)
        ]
        found, flaws = contents(arena, fresh)
    finally:
        fresh.close()
    arena.violations += [f"{label}: {text}" for text in wrong + flaws]
    arena.promises[label] = partial(copied_well, arena, label, until if used is None else used.moment, found)
    arena.done["rebuild"] += 1
    arena.done["newer blob reported"] += len(report.newer)


def _gone(blobs: Blobs, key: str) -> bool:
    return blobs.size(key) is None


def _committed(store: Store) -> dict[str, list[tuple[LogId, int]]]:
    """Returns for each blob with committed events the logs of these events and where the extents stop."""
    found: dict[str, list[tuple[LogId, int]]] = {}
    with store.catalog.reading() as snapshot:
        for log in snapshot.logs_after(LogId(0), _FOR_EVER):
            for extent in snapshot.extents(log.id, 0, _FOR_EVER, _FOR_EVER):
                if extent.key is not None:
                    found.setdefault(extent.key, []).append((log.id, extent.stop))
    return found


def _unsaid(
    catalog: Catalog, blobs: Blobs, committed: dict[str, list[tuple[LogId, int]]], report: RebuildReport
) -> list[str]:
    """Returns blobs with committed events that are neither in the rebuilt catalog nor in the report."""
    with catalog.reading() as snapshot:
        lengths = {log.id: log.length for log in snapshot.logs_after(LogId(0), _FOR_EVER)}
    newer = {each.key for each in report.newer}
    return [
        f"nothing was said of {key}, which holds committed events"
        for key, ends in committed.items()
        if key not in newer and blobs.size(key) is not None and any(lengths.get(log, 0) < stop for log, stop in ends)
    ]
