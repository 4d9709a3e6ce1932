"""Repair and key rotation: what is sound stays unchanged, what is repaired is as it was, and no key is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from anabranch.catalog.port import Catalog, Reading
from anabranch.catalog.tables import TABLES, Value
from anabranch.errors import Conflict, InvalidArgument
from anabranch.log.checking.repair import repair
from anabranch.log.recovery import manifest as manifests
from anabranch.log.recovery.reload import reload
from anabranch.model.append import LogState
from anabranch.model.ids import LogId, Micros
from tests.simulation.clients.arena import EXPECTED, Arena

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["mend", "rotate"]

_FOR_EVER: Final = 1 << 62
_TRIES: Final = 6
_DAMAGE: Final[Sequence[Callable[[LogState], LogState]]] = (
    lambda log: replace(log, size=log.size + 7),
    lambda log: replace(log, size=0),
    lambda log: replace(log, appended_at=Micros(0)),
    lambda log: replace(log, low_water=log.length + 1),
)


def mend(arena: Arena, store: Store, name: str) -> None:
    """Repairs the store, which needs no repair, and damaged copies of its catalog."""
    for _ in arena.turns(store, 12):
        with suppress(*EXPECTED):
            if arena.chance(0.6):
                _mend_what_is_sound(arena, store)
            else:
                _mend_a_copy(arena, store)


def _mend_what_is_sound(arena: Arena, store: Store) -> None:
    with store.catalog.reading() as snapshot:
        leases = {lease.id: lease for lease in snapshot.leases()}
    for mended in store.repair():
        if not mended.where.startswith("lease "):
            arena.violations.append(f"a sound store was repaired: {mended}")
            continue
        lease = leases.get(mended.where.split()[1])
        with store.catalog.reading() as snapshot:
            if lease is not None and lease.begun_at >= snapshot.horizon():
                arena.violations.append(f"a repair ended a lease that held: {mended}")
    arena.done["repair of what is sound"] += 1


def _mend_a_copy(arena: Arena, store: Store) -> None:
    """A copy of the catalog with damaged rows is as it was once it is repaired, however often the repair was
    interrupted."""
    there = arena.elsewhere(store)
    source, catalog = there.memory(), there.catalog()
    manifest = manifests.write(store.catalog, source, store.runtime)
    manifests.finish(manifest, source)
    reload(catalog, source, manifest, store.runtime)
    before = _rows(catalog)
    _damage(arena, catalog)
    for _ in range(_TRIES):
        with suppress(*EXPECTED):
            for _ in repair(catalog, now=store.runtime.clock.now()):
                pass
            break
    else:
        return
    after = _rows(catalog)
    wrong = [table for table in before if table != "leases" and before[table] != after[table]]
    arena.violations += [f"a repaired catalog has other {table} than before it was damaged" for table in wrong]
    arena.done["repair"] += 1


def _rows(catalog: Catalog) -> dict[str, list[tuple[Value, ...]]]:
    with catalog.reading() as snapshot:
        return {table.name: _table(snapshot, table.name, table.key) for table in TABLES}


def _table(snapshot: Reading, name: str, key: int) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    while page := snapshot.export(name, rows[-1][:key] if rows else None):
        rows += page
    return rows


def _damage(arena: Arena, catalog: Catalog) -> None:
    """Damages rows that can be derived from others: those of logs that hold something from their first position on."""
    with catalog.writing() as txn:
        for log in txn.logs_after(LogId(0), _FOR_EVER):
            extents = txn.extents(log.id, 0, _FOR_EVER, _FOR_EVER)
            told = bool(extents) and (extents[-1].appended.high, extents[0].start) == (log.appended_at, log.low_water)
            viewed = any(span.stop is None or span.start < span.stop for _, span in txn.spans_of_log(log.id))
            if told and viewed and arena.chance(0.5):
                txn.update_log(arena.rng.choice(_DAMAGE)(log))


def rotate(arena: Arena, store: Store, name: str) -> None:
    """Rotates the keys of an encrypted store. All clients that read check the effect."""
    for _ in arena.turns(store, 10):
        try:
            store.rotate_keys()
            arena.done["rotation"] += 1
        except InvalidArgument:  # the store is not encrypted
            return
        except Conflict:
            arena.done["rotation refused"] += 1
        except EXPECTED:
            arena.done["rotation unanswered"] += 1
