"""A process that appends to the streams under torture, copies them, and renames them.

Every change has a request id that is logged before the request, so a request that was never answered, because the
process was killed, can be repeated at the end.
"""

from __future__ import annotations

import random
import time
from itertools import count
from pathlib import Path

import pyarrow as pa

import anabranch as ab
from anabranch.errors import AlreadyExists, AnabranchError, AppendUncertain, StoreUnavailable, StreamNotFound
from tests.simulation.changes import APPEND, COPY, RENAME, Change
from tests.simulation.ledger import Event
from torture.child import Log
from torture.location import STREAMS, StoreLocation

_AGAIN_S = 0.2
_EVENTS = 6


def shuffle(log: Log, place: StoreLocation, stop: Path, name: str, seed: int) -> None:
    """Runs until the file `stop` exists."""
    rng = random.Random(seed)
    numbers = count()
    while not stop.exists():
        try:
            with place.open(seed) as store:
                undo_renames(store)
                while not stop.exists():
                    number = f"{name}-{next(numbers)}".replace(".", "-")
                    rng.choice((_append, _append, copy, _rename))(log, stop, store, rng.choice(STREAMS), number)
                    time.sleep(rng.random() * 0.5)
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def undo_renames(store: ab.Store) -> None:
    """Undoes renames of streams that a killed process left behind."""
    for stream in STREAMS:
        try:
            store.streams.rename(_away(stream), stream)
        except (StreamNotFound, AlreadyExists):
            continue


def _away(stream: str) -> str:
    return f"{stream}-away"


def _append(log: Log, stop: Path, store: ab.Store, stream: str, number: str) -> None:
    source = f"t/source-{number}"
    _fill(log, store, source, number)
    _request_until_answered(log, stop, store, APPEND, number, stream, source)


def _fill(log: Log, store: ab.Store, source: str, number: str) -> None:
    store.streams.create(source, scaling=2)
    events = [Event(number, f"k{i % 2}", i // 2) for i in range(_EVENTS)]
    with store.writer(source) as writer:
        table = pa.table({"key": [each.key for each in events], "payload": [each.payload() for each in events]})
        ack = writer.write_batch(table, atomic=True)
        places = [ack.pointer(row) for row in range(len(events))]
    log(
        "made",
        source,
        *(f"{event.writer}|{event.key}|{event.number}:{at}" for event, at in zip(events, places, strict=True)),
    )


def copy(log: Log, stop: Path, store: ab.Store, stream: str, number: str) -> None:
    """Copies a stream, logs where the copy ends, and deletes most copies."""
    target = f"t/copy-{number}"
    copied = _request_until_answered(log, stop, store, COPY, number, target, stream)
    if copied:
        log("holds", number, store.cuts.tail(target))  # no process writes to it
    if copied and not number.endswith(("0", "5")):  # some are kept
        log("dropping", number)
        store.streams.delete(target)


def _rename(log: Log, stop: Path, store: ab.Store, stream: str, number: str) -> None:
    away = _away(stream)
    if _request_until_answered(log, stop, store, RENAME, number, away, stream):
        time.sleep(0.1)
    _request_until_answered(log, stop, store, RENAME, f"{number}-back", stream, away)


def _request_until_answered(
    log: Log, stop: Path, store: ab.Store, change: Change, number: str, target: str, source: str
) -> bool:
    """Logs a request, repeats it until it is answered, and logs the answer. A refusal changed nothing."""
    log("ask", number, change.name, target, source)
    while True:
        try:
            answer = change.ask(store, number, target, source)
        except (AppendUncertain, StoreUnavailable) as exc:
            log("met", type(exc).__name__, exc)
            if stop.exists():
                return False
            time.sleep(_AGAIN_S)
        except AnabranchError as exc:
            log("refused-change", number, type(exc).__name__)
            return False
        else:
            log("answer", number, change.to_text(answer))
            log("did", change.name)
            return True
