"""Reader groups that subscribe a stream: retention waits for the slowest, whatever crashes, is scaled or reset."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from anabranch import limits
from anabranch.errors import GroupNotFound, NotFound, ReaderNotInGroup, Truncated
from anabranch.model.cut import HEAD
from anabranch.streams.retention.policy import RetainConsumed
from tests.simulation.clients.arena import EXPECTED, KEYS, Arena

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["consume", "release"]

_STREAM: Final = "sim/consumed"
_GROUPS: Final = ("sim/quick", "sim/slow")
_RESET: Final = "sim/quick"  # the head may have moved on since it was reset there
_LEASE_S: Final = limits.READER_LEASE_US_MIN / 1e6
_END_READS: Final = 2_000


def release(arena: Arena, store: Store, name: str) -> None:
    """Writes to the stream, scales it, and applies its retention, which has no bound: nothing is removed before all
    groups have read it."""
    arena.promises["retention waited for every subscriber"] = lambda store: _all_read(arena, store)
    written = arena.shared("consumed stream", set[bytes])
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED):
            _make(store)
            with store.writer(_STREAM) as writer:
                for _ in range(arena.rng.randrange(1, 8)):
                    body = f"{name} {arena.serial()}".encode()
                    writer.write(body, key=arena.rng.choice(KEYS)).result()
                    written.add(body)
            if arena.chance(0.2):
                store.streams.scale(_STREAM, arena.rng.randrange(1, 5))
        with suppress(*EXPECTED):
            before = store.cuts.head(_STREAM)
            if arena.chance(0.5):
                store.retain(_STREAM)
            else:
                store.streams.truncate(_STREAM, by="groups")
            arena.done["consumed stream truncated"] += store.cuts.head(_STREAM) != before


def consume(arena: Arena, store: Store, name: str) -> None:
    """Reads as one of the groups, each at its own pace; now and then resets the quick one to the head."""
    for _ in arena.turns(store, 20):
        group = arena.rng.choice(_GROUPS)
        with suppress(*EXPECTED, NotFound, ReaderNotInGroup):
            _make(store)
            store.groups.open(group, streams=[_STREAM], lease_s=_LEASE_S)
            if group == _RESET and arena.chance(0.2):
                store.groups.open(group).reset(HEAD)
            _read(arena, store, group, f"{name}-{arena.rng.randrange(2)}", arena.rng.randrange(1, 12))


def _read(arena: Arena, store: Store, group: str, reader_name: str, batches: int) -> int:
    seen = arena.shared(f"seen by {group}", set[bytes])
    count = 0
    with store.groups.open(group).reader(reader_name, delivery="exactly_once", batch_rows=3) as reader:
        for _ in range(batches):
            try:
                batch = reader.read(_LEASE_S)
            except Truncated as exc:
                if group != _RESET:
                    arena.violations.append(f"retention passed group {group}, though there is no bound: {exc}")
                raise
            if batch is not None:
                count += batch.num_rows
                seen.update(batch.column("payload").to_pylist())  # recorded first: an accepted event was seen
                reader.commit()
                arena.done["consumed batch"] += 1
    return count


def _make(store: Store) -> None:
    """The policy is set when the stream is created, and names groups that are created later."""
    if not store.streams.exists(_STREAM):
        store.streams.create(_STREAM, scaling=2, retention=RetainConsumed(_GROUPS), exist_ok=True)


def _all_read(arena: Arena, store: Store) -> Sequence[str]:
    """Once each group has read to the end, it has seen every acknowledged event."""
    written = arena.shared("consumed stream", set[bytes])
    found = []
    for group in _GROUPS:
        try:
            left = store.groups.open(group)
        except GroupNotFound:  # the client that would create it was killed before, or half-way
            continue
        for _ in range(_END_READS):
            with suppress(Truncated):
                if not _read(arena, store, group, "last", 50) and not left.unread().events:
                    break
        missing = written - arena.shared(f"seen by {group}", set[bytes])
        if missing:
            found.append(f"group {group} was never given {len(missing)} events: {sorted(missing)[:3]}")
    return found
