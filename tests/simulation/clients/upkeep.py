"""Background upkeep: streams are scaled by their load and truncated by their retention policies, in any process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from anabranch import limits
from anabranch.log.upkeep.maintenance import Maintenance
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.policy import ByEventRate
from anabranch.model.stream import StreamView
from anabranch.runtime.periodic import Periodic
from anabranch.streams.retention.policy import RetainBytes
from anabranch.streams.scaling.plan import ScalingPace
from tests.simulation.clients.arena import EXPECTED, Arena
from tests.simulation.clients.write import Hand
from tests.simulation.ledger import Fate, Ledger

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["load", "tend"]

_STREAM: Final = "sim/loaded"
_SIZE: Final = 3_000  # logical bytes that retention keeps
_POLICY: Final = ByEventRate(60.0, factor=2, minimum=2)
_PACE: Final = ScalingPace(short_us=200_000, long_us=600_000, split_cooldown_us=200_000, merge_cooldown_us=600_000)


def load(arena: Arena, store: Store, name: str) -> None:
    """Writes to a stream that is scaled by its load, at times much and at times nothing."""
    busy = True
    for _ in arena.turns(store, 4):
        with suppress(*EXPECTED):
            ledger = _loaded(arena, store)
            busy = busy != arena.chance(0.1)
            if busy:
                with arena.client(store, name).writer(ledger.stream) as writer:
                    hand = Hand(arena, store, ledger, writer, f"{name}.{arena.serial()}")
                    for _ in range(arena.rng.randrange(1, 4)):
                        hand.burst()
                    hand.settle()


def tend(arena: Arena, store: Store, name: str) -> None:
    """Runs the real background tasks for a while: scaling at an interval, and all other upkeep."""
    settings = replace(store.runtime.settings, maintenance_s=0.1, manifest_s=0.5, retention_s=0.2)
    for _ in arena.turns(store, 10):
        with suppress(*EXPECTED):
            _loaded(arena, store)
            scaling = Periodic(store.runtime, "scaling", 0.05, lambda: _rescale(arena, store))
            upkeep = Maintenance(
                store.catalog, store.blobs, replace(store.runtime, settings=settings), sweep=store._sweep
            )
            for each in (scaling, upkeep):
                each.start()
            store.runtime.tasks.sleep(0.2 + arena.rng.random())
            for each in (scaling, upkeep):
                each.close()
                for failure in (each.fault, each.failure):
                    if failure is not None and not isinstance(failure, EXPECTED):
                        arena.violations.append(f"upkeep failed: {failure!r}")
                arena.done["round of upkeep"] += each.rounds


def _loaded(arena: Arena, store: Store) -> Ledger:
    made = Ledger(_STREAM)
    ledger = arena.shared("loaded", lambda: made)
    if _STREAM not in arena.ledgers:
        retention = RetainBytes(_SIZE)
        info = store.streams.create(_STREAM, scaling=_POLICY, retention=retention, exist_ok=True)
        if _STREAM not in arena.ledgers:
            arena.adopt(ledger, info.id, active=False)
            arena.promises[_STREAM] = partial(_kept, ledger)
    return ledger


def _rescale(arena: Arena, store: Store) -> None:
    """If another process held the lease before and after the call, the call did nothing."""
    before = _held(store)
    report = store.rescale(pace=_PACE)
    others = before & _held(store)
    arena.done["rescaled"] += report.scaled
    if report.streams and others:
        arena.violations.append("streams were scaled by load, though another process was at it all the while")


def _held(store: Store) -> set[str]:
    """Returns the leases of the processes that scale, as far as they are valid by every clock."""
    now = store.runtime.clock.now()
    with store.catalog.reading() as reading:
        leases = reading.leases()
    return {each.id for each in leases if each.kind == "rescale" and each.expires_at > now + limits.CLOCKS_DIFFER_US}


def _kept(ledger: Ledger, store: Store) -> Sequence[str]:
    """The stream has its minimum of segments, changed no faster than allowed, and keeps the bytes that its policy
    keeps."""
    view = store.streams.view(ledger.stream)
    wrong = [*_hasty(store, view)]
    if len(view.current) < _POLICY.minimum:
        wrong.append(f"{_STREAM} has {len(view.current)} segments, and is to have {_POLICY.minimum} at least")
    # The retention client judges the exact amount: here large and small events share an extent.
    if any(fate is Fate.ACKED for fate in ledger.fates.values()) and not store.cuts.distance(ledger.stream).events:
        wrong.append(f"{_STREAM} is empty, and is to keep {_SIZE} bytes")
    return wrong


def _hasty(store: Store, view: StreamView) -> Iterator[str]:
    """Returns segments that were split into more than the factor, or before their rest time was over."""
    made: dict[str, Micros] = {}
    with store.catalog.reading() as reading:
        changes = [each for each in reading.changes(0, 10_000) if each.stream == view.info.id and each.kind == "scaled"]
    for change in changes:
        sealed, created = (cast(Sequence[str], change.detail[each]) for each in ("sealed", "created"))
        for old in sealed:
            parts = sum(_range(view, old).overlaps(_range(view, new)) for new in created)
            rest = change.at - made.get(old, Micros(0))
            if parts > _POLICY.factor:
                yield f"segment {old} of {_STREAM} was split into {parts}"
            if parts > 1 and rest < _PACE.split_cooldown_us - limits.CLOCKS_DIFFER_US:
                yield f"segment {old} of {_STREAM} was split {rest / 1e3:.0f} ms after it was made"
        made |= dict.fromkeys(created, change.at)


def _range(view: StreamView, segment: str) -> KeyRange:
    epoch, number = segment.split(".")
    return view.segments[SegmentId(int(epoch), int(number))].range
