"""Readers of one group while their stream is written to and scaled: what they output contains each event exactly
once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import (
    AlreadyExists,
    AppendUncertain,
    Conflict,
    GroupNotFound,
    NotFound,
    ReaderNotInGroup,
    StoreUnavailable,
)
from tests.simulation.clients.arena import EXPECTED, KEYS, Arena

if TYPE_CHECKING:
    from anabranch.groups.group import ReaderGroup
    from anabranch.groups.reader import GroupReader
    from anabranch.store import Store

__all__ = ["feed", "share"]

_GROUP: Final = "sim/group"
_SOURCE: Final = "sim/shared"
_MADE: Final = "sim/made"
_READERS: Final = ("r1", "r2", "r3")  # several processes may open the same one
_LEASE_S: Final = limits.READER_LEASE_US_MIN / 1e6
_END_READS: Final = 2_000
_COMMIT_TRIES: Final = 4


def feed(arena: Arena, store: Store, name: str) -> None:
    """Writes to the shared stream, and scales it now and then."""
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED):
            _make(store)
            with store.writer(_SOURCE) as writer:
                for _ in range(arena.rng.randrange(1, 10)):
                    key = arena.rng.choice(KEYS)
                    writer.write(f"{key} {name} {arena.serial()}".encode(), key=key)
            if arena.chance(0.2):
                store.streams.scale(_SOURCE, arena.rng.randrange(1, 5))
                arena.done["shared stream scaled"] += 1


def share(arena: Arena, store: Store, name: str) -> None:
    """Opens readers of the group one after another, copies what they read, and leaves in various ways."""
    arena.promises["what a group made is what it read"] = _same
    for _ in arena.turns(store, 20):
        try:
            _make(store)
            group = store.groups.open(_GROUP, streams=[_SOURCE], lease_s=_LEASE_S)
            _work(arena, store, group)
        except ReaderNotInGroup:
            arena.done["group reader refused"] += 1
        except (*EXPECTED, NotFound):
            arena.done["group reader cut off"] += 1


def _work(arena: Arena, store: Store, group: ReaderGroup) -> None:
    reader = group.reader(arena.rng.choice(_READERS), delivery="exactly_once", batch_rows=5)
    try:
        for _ in range(arena.rng.randrange(1, 12)):
            if arena.chance(0.1):
                for _ in range(arena.rng.randrange(1, 4)):  # several are pending at once
                    with suppress(TimeoutError, AlreadyExists, Conflict):
                        group.checkpoint(f"c{arena.serial()}", timeout_s=0.0)
            batch = _read(reader, arena.rng.random() * _LEASE_S, slow=arena.chance(0.1))
            if batch is not None:
                _commit(arena, store, group, reader, batch)
                arena.done["shared batch"] += 1
            if arena.chance(0.1):
                store.runtime.tasks.sleep(arena.rng.random() * 2 * _LEASE_S)
    finally:
        reader.abandon() if arena.chance(0.3) else reader.close()


def _make(store: Store) -> None:
    for stream, segments in ((_SOURCE, 2), (_MADE, 1)):
        if not store.streams.exists(stream):
            store.streams.create(stream, scaling=segments, exist_ok=True)


def _read(reader: GroupReader, timeout_s: float, *, slow: bool = False) -> pa.Table | None:
    """Returns the output for a batch, or for two batches at once."""
    batches = [batch for _ in range(1 + slow) if (batch := reader.read(timeout_s=timeout_s)) is not None]
    return pa.Table.from_batches([batch.select(["key", "payload"]) for batch in batches]) if batches else None


def _commit(arena: Arena, store: Store, group: ReaderGroup, reader: GroupReader, batch: pa.Table) -> None:
    """Writes a batch in one atomic unit with the position. A commit that fails is retried as documented, after a
    pause in which another reader may join and take some of the segments."""
    with ExitStack() as guests:
        for _ in range(_COMMIT_TRIES):
            held = reader.segments
            try:
                reader.commit({_MADE: batch})
                return
            except (AppendUncertain, StoreUnavailable):
                arena.done["shared commit failed"] += 1
            with suppress(*EXPECTED, NotFound, ReaderNotInGroup):
                if arena.chance(0.5):
                    guests.enter_context(group.reader(f"guest{arena.serial()}"))
            store.runtime.tasks.sleep(_LEASE_S * (0.5 + arena.rng.random()))
            arena.done["shared commit retried after a rebalance"] += reader.segments != held
        reader.commit({_MADE: batch})


def _same(store: Store) -> Sequence[str]:
    """Once a last reader has read to the end, each key's events are in the output once and in order."""
    try:
        group = store.groups.open(_GROUP)
    except GroupNotFound:  # the client that would create it was killed before, or half-way
        return []
    with group.reader("last", delivery="exactly_once") as reader:
        for _ in range(_END_READS):
            batch = _read(reader, _LEASE_S)
            if batch is not None:
                reader.commit({_MADE: batch})
            elif not group.unread().events:
                break
    read, made = _by_key(store, _SOURCE), _by_key(store, _MADE)
    return [
        f"of key {key}, the group read {len(read[key])} events and made {len(made[key])} of them, or in another order"
        for key in sorted(read.keys() | made.keys())
        if read[key] != made[key]
    ]


def _by_key(store: Store, stream: str) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    with store.reader(stream) as reader:
        for event in reader:
            found[event.key].append(event.body)
    return found
