"""Archives: an imported archive holds what its source held when it was archived, whatever happened meanwhile."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.blobs.address import is_remote
from anabranch.transfer.archives.format import Imported
from tests.simulation.clients.arena import EXPECTED, Arena, Asked
from tests.simulation.clients.copy import note_copy
from tests.simulation.clients.transfers import STREAMS_MAX, begin, some_range, whole
from tests.simulation.inheritance import Joint
from tests.simulation.ledger import Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["archive"]


def archive(arena: Arena, store: Store, name: str) -> None:
    """Archives streams that are written to, or ranges of them, and imports the archives under other names."""
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED):
            source = arena.pick_any()
            _there_and_back(arena, store, source)


def _there_and_back(arena: Arena, store: Store, source: Ledger) -> None:
    asked_for, exact = some_range(arena, store, source) if arena.chance(0.6) else whole(source)
    target = f"sim/import{arena.serial()}"
    # Beside the store's own blobs, so that crashes and power cuts affect it like them.
    place = store.blobs.path(target.replace("sim/", "archived-"))
    if is_remote(place):  # the simulated bucket serves only the locations of stores
        return
    joint = begin(arena, target, source, Ledger(target), exact)
    for _ in range(2):  # if interrupted, continue
        with suppress(*EXPECTED):
            store.archives.create(asked_for, place, in_the_clear=True, request=f"{target} out")
            break
    else:
        return
    arena.done["archive"] += 1
    arena.joints[target] = [joint]

    def note(each: Store, imported: Imported) -> None:
        _note(arena, each, joint, imported)

    asked = Asked(lambda each: each.archives.import_(place, as_=target, request=target), note)
    if arena.ask(store, target, asked) and len(arena.ledgers) > STREAMS_MAX:
        joint.heir.gone = True
        store.streams.delete(joint.heir.stream)


def _note(arena: Arena, store: Store, joint: Joint, imported: Imported) -> None:
    ((_, copied),) = imported.streams
    note_copy(arena, store, joint, copied)
    arena.done["import"] += 1
