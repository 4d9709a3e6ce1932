"""Readers of one group under torture: what they write, together with their positions, must be an exact copy of the
stream."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Final

import pyarrow as pa

import anabranch as ab
from anabranch.errors import AnabranchError
from torture.child import Log
from torture.location import StoreLocation
from torture.transact import STREAMS

GROUP: Final = "t/group"
SOURCE: Final = STREAMS[0]
MADE: Final = "t/made"
READERS: Final = ("r1", "r2", "r3")  # several processes may open the same one
_KILLED_BEHIND: Final = 0.1  # of its units: a position that was not stored with its output is lost there
_AGAIN_S: Final = 0.2
_IDLE_READS: Final = 3


def share(log: Log, place: StoreLocation, stop: Path, name: str, seed: int) -> None:
    """Opens readers of the group one after another, copies what they read, exactly once, and leaves in various ways.
    One is SIGKILL right after a unit, a moment that other kills rarely hit."""
    rng = random.Random(seed)
    while not stop.exists():
        try:
            with place.open(seed) as store:
                while not stop.exists():
                    _work(log, stop, rng, store)
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def _work(log: Log, stop: Path, rng: random.Random, store: ab.Store) -> None:
    reader = store.groups.open(GROUP).reader(rng.choice(READERS), delivery="exactly_once", batch_rows=10)
    try:
        for _ in range(rng.randrange(1, 40)):
            if stop.exists():
                break
            if _copy(reader, 0.3):
                log("did", "unit of a group")
                if rng.random() < _KILLED_BEHIND:
                    log("did", "kill -9 behind a unit")
                    os.kill(os.getpid(), signal.SIGKILL)
    finally:
        reader.abandon() if rng.random() < 0.3 else reader.close()


def _copy(reader: ab.GroupReader, timeout_s: float) -> bool:
    batch = reader.read(timeout_s=timeout_s)
    if batch is not None:
        reader.commit({MADE: pa.Table.from_batches([batch.select(["key", "payload"])])})
    return batch is not None


def wrong(store: ab.Store, counts: Counter[str]) -> list[str]:
    """Returns how the group's output differs from what it read, once a last reader has read to the end. No other
    process may use the store."""
    group = store.groups.open(GROUP)
    idle = 0
    with group.reader("last", delivery="exactly_once") as reader:
        while idle < _IDLE_READS or group.unread().events:
            idle = 0 if _copy(reader, 0.3) else idle + 1
            if idle > 300:
                return [f"the group does not come to the end: {group.unread().events} events are unread"]
    read, made = _by_key(store, SOURCE), _by_key(store, MADE)
    counts["events made by a group"] = sum(map(len, made.values()))
    return [
        f"the group read {len(read[key])} events of key {key} and made {len(made[key])}, or in another order"
        for key in sorted(read.keys() | made.keys())
        if read[key] != made[key]
    ]


def _by_key(store: ab.Store, stream: str) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    with store.reader(stream) as reader:
        for event in reader:
            found[event.key].append(event.body)
    return found
