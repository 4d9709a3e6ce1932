"""Readers of one group, exactly once, while their stream is written to and scaled: what they make of it is the same again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AlreadyExists, GroupNotFound, NotFound, ReaderNotInGroup
from anabranch.testing.clients.arena import EXPECTED, KEYS, Arena

if TYPE_CHECKING:
    from anabranch.readers.group.group import ReaderGroup
    from anabranch.readers.group.reader import GroupReader
    from anabranch.store import Store

__all__ = ["feed", "share"]

_GROUP: Final = "sim/group"
_SOURCE: Final = "sim/shared"
_MADE: Final = "sim/made"
_READERS: Final = ("r1", "r2", "r3")  # of which several processes may open one
_LEASE_S: Final = limits.READER_LEASE_US_MIN / 1e6
_END_READS: Final = 2_000


def feed(arena: Arena, store: Store, name: str) -> None:
    """Write to the stream that is shared, and scale it now and then."""
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
    """Open readers of the group one after another, copy what they read, and leave in any way."""
    arena.promises["what a group made is what it read"] = _same
    for _ in arena.turns(store, 20):
        try:
            _make(store)
            group = store.reader_group(_GROUP, streams=[_SOURCE], lease_s=_LEASE_S)
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
                with suppress(TimeoutError, AlreadyExists):
                    group.checkpoint(f"c{arena.serial()}", timeout_s=0.0)
            arena.done["shared batch"] += _copy(reader, arena.rng.random() * _LEASE_S, slow=arena.chance(0.1))
            if arena.chance(0.1):
                store.runtime.tasks.sleep(arena.rng.random() * 2 * _LEASE_S)
    finally:
        reader.abandon() if arena.chance(0.3) else reader.close()


def _make(store: Store) -> None:
    for stream, segments in ((_SOURCE, 2), (_MADE, 1)):
        if not store.streams.exists(stream):
            store.streams.create(stream, scaling=segments, exist_ok=True)


def _copy(reader: GroupReader, timeout_s: float, *, slow: bool = False) -> bool:
    """Copy a batch in one unit with the position; or two at once."""
    batches = [batch for _ in range(1 + slow) if (batch := reader.read(timeout_s=timeout_s)) is not None]
    if batches:
        reader.commit({_MADE: pa.Table.from_batches([batch.select(["key", "payload"]) for batch in batches])})
    return bool(batches)


def _same(store: Store) -> Sequence[str]:
    """Once a last reader has read on to the end, each key's events were made once and in order."""
    try:
        group = store.reader_group(_GROUP)
    except GroupNotFound:  # whoever was to make it was killed before, or half way
        return []
    with group.reader("last", delivery="exactly_once") as reader:
        for _ in range(_END_READS):
            if not _copy(reader, _LEASE_S) and not group.unread().events:
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
