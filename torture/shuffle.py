"""A process that makes streams of the streams under torture: appends to them, copies them, gives them other names.

Every change has a request id that is told before it is asked for, so what was asked for and never answered, because the
process was killed, can be asked for again in the end.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import anabranch as ab
from anabranch.core.copy import Copied
from anabranch.core.stitch import Joined
from anabranch.errors import AlreadyExists, AnabranchError, AppendUncertain, StoreUnavailable, StreamNotFound
from anabranch.testing.ledger import Event
from torture.child import Tell
from torture.place import STREAMS, Place

_AGAIN_S = 0.2
_EVENTS = 6


def shuffle(tell: Tell, place: Place, stop: Path, name: str, seed: int) -> None:
    """Go on until the file `stop` is there."""
    rng = random.Random(seed)
    numbers = count()
    while not stop.exists():
        try:
            with place.open(seed) as store:
                names_back(store)
                while not stop.exists():
                    number = f"{name}-{next(numbers)}".replace(".", "-")
                    rng.choice((_append, _append, copy, _rename))(tell, stop, store, rng.choice(STREAMS), number)
                    time.sleep(rng.random() * 0.5)
        except AnabranchError as exc:
            tell("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def names_back(store: ab.Store) -> None:
    """Give the streams the names back that whoever was killed had taken."""
    for stream in STREAMS:
        try:
            store.streams.rename(_away(stream), stream)
        except (StreamNotFound, AlreadyExists):
            continue


def _away(stream: str) -> str:
    return f"{stream}-away"


def _append(tell: Tell, stop: Path, store: ab.Store, stream: str, number: str) -> None:
    source = f"t/source-{number}"
    _fill(tell, store, source, number)
    tell("ask", number, "append", stream, source)
    _insist(tell, stop, number, "append", lambda: append_again(store, number, stream, source))


def _fill(tell: Tell, store: ab.Store, source: str, number: str) -> None:
    store.streams.create(source, scaling=2)
    events = [Event(number, f"k{i % 2}", i // 2) for i in range(_EVENTS)]
    with store.writer(source) as writer:
        table = pa.table({"key": [each.key for each in events], "payload": [each.payload() for each in events]})
        ack = writer.write_batch(table, atomic=True)
        places = [ack.pointer(row) for row in range(len(events))]
    tell(
        "made",
        source,
        *(f"{event.writer}|{event.key}|{event.number}:{at}" for event, at in zip(events, places, strict=True)),
    )


def append_again(store: ab.Store, number: str, stream: str, source: str) -> Joined:
    """Ask for an append, however often it was asked for before."""
    return store.streams.append(source, stream, request=number)


def copy(tell: Tell, stop: Path, store: ab.Store, stream: str, number: str) -> None:
    """Copy a stream, tell where the copy ends, and give most copies up again."""
    target = f"t/copy-{number}"
    tell("ask", number, "copy", target, stream)
    copied = _insist(tell, stop, number, "copy", lambda: copy_again(store, number, target, stream))
    if copied:
        tell("holds", number, store.streams.tail(target))  # nobody writes to it
    if copied and not number.endswith(("0", "5")):  # some stay
        tell("dropping", number)
        store.streams.delete(target)


def copy_again(store: ab.Store, number: str, target: str, stream: str) -> Copied:
    """Ask for a copy, however often it was asked for before."""
    return store.streams.copy(stream, target, request=number)


def _rename(tell: Tell, stop: Path, store: ab.Store, stream: str, number: str) -> None:
    away = _away(stream)
    tell("ask", number, "rename", away, stream)
    if _insist(tell, stop, number, "rename", lambda: store.streams.rename(stream, away, request=number)):
        time.sleep(0.1)
    _insist(
        tell, stop, f"{number}-back", "rename", lambda: store.streams.rename(away, stream, request=f"{number}-back")
    )


def _insist(tell: Tell, stop: Path, number: str, what: str, ask: Callable[[], Any]) -> bool:
    """Ask until there is an answer, and tell it. A refusal changed nothing."""
    while True:
        try:
            answer = ask()
        except (AppendUncertain, StoreUnavailable) as exc:
            tell("met", type(exc).__name__, exc)
            if stop.exists():
                return False
            time.sleep(_AGAIN_S)
        except AnabranchError as exc:
            tell("refused-change", number, type(exc).__name__)
            return False
        else:
            said = answer.to_json() if isinstance(answer, Joined | Copied) else {}
            tell("answer", number, json.dumps(said, separators=(",", ":")))
            tell("did", what)
            return True
