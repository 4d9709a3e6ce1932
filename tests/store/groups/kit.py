"""Streams for reader groups, and what their readers were given."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

import anabranch as ab
from anabranch.store import Store

KEYS = 8


def write(store: Store, start: int, count: int, stream: str = "s/a") -> None:
    """Events `key:sequence`, so many of each key."""
    with store.writer(stream) as writer:
        for sequence in range(start, start + count):
            for key in range(KEYS):
                writer.write(f"{key}:{sequence}".encode(), key=f"k{key}")


def started(work: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def sequences(bodies: list[bytes]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for body in bodies:
        key, sequence = body.split(b":")
        found[int(key)].append(int(sequence))
    return dict(found)


def complete(bodies: list[bytes], count: int) -> bool:
    """True if every key's events are there, once and in order."""
    return sequences(bodies) == {key: list(range(count)) for key in range(KEYS)}


def take(reader: ab.GroupReader, count: int) -> list[bytes]:
    events = iter(reader)
    return [next(events).body for _ in range(count)]
