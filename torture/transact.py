"""Transactions over two streams under torture: each is visible completely, in both, or not at all, as its state
says."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import anabranch as ab
from anabranch.errors import AnabranchError, AppendUncertain, InvalidArgument, StoreUnavailable, TransactionAborted
from anabranch.model.transaction import TransactionState
from anabranch.transactions.transaction import Transaction
from torture.child import Child, Log
from torture.location import LEASE_S, StoreLocation

STREAMS: Final = ("t/left", "t/right")
_KEYS: Final = 3
_AGAIN_S: Final = 0.2


def transact(log: Log, place: StoreLocation, stop: Path, name: str, seed: int) -> None:
    """Writes the same events to both streams in a transaction, with or without flushes; then commits, aborts or
    abandons it."""
    rng = random.Random(seed)
    numbers = count()
    while not stop.exists():
        try:
            with place.open(seed) as store:
                while not stop.exists():
                    _one(log, stop, rng, store, f"{name}|{next(numbers)}")
                    time.sleep(rng.random() * 0.3)
                    if rng.random() < 0.1:
                        store.streams.scale(rng.choice(STREAMS), rng.choice((1, 2, 4)))
        except AnabranchError as exc:
            log("met", type(exc).__name__, exc)
            time.sleep(_AGAIN_S)


def _one(log: Log, stop: Path, rng: random.Random, store: ab.Store, label: str) -> None:
    txn = store.transaction(lease_s=LEASE_S)
    events = rng.randrange(1, 8)
    log("begun", txn.id, label, events)
    try:
        for i in range(events):
            for stream in STREAMS:
                txn.writer(stream).write(f"{label}|{i}".encode(), key=f"k{i % _KEYS}")
            if rng.random() < 0.2:
                txn.flush()
        draw = rng.random()
        if draw < 0.7:
            _commit(log, stop, txn)
        elif draw < 0.85:
            txn.abort()
            log("aborted", txn.id)
            log("did", "abort")
    except TransactionAborted:
        log("aborted", txn.id)
    except InvalidArgument as exc:  # the request whose answer was lost did commit it
        if "is committed" not in str(exc):
            raise
        log("committed", txn.id)


def _commit(log: Log, stop: Path, txn: Transaction) -> None:
    while True:
        try:
            txn.commit()
        except (AppendUncertain, StoreUnavailable) as exc:
            log("met", type(exc).__name__, exc)
            if stop.exists():
                return
            time.sleep(_AGAIN_S)
        else:
            log("committed", txn.id)
            log("did", "commit")
            return


def wrong(store: ab.Store, children: Sequence[Child], counts: Counter[str]) -> list[str]:
    """Returns what differs from the logs, or from the transactions' states; and what is out of order."""
    store.collect()  # sweeps abandoned ones too
    committed = {info.id for info in store.transactions.list() if info.state is TransactionState.COMMITTED}
    there = {stream: _by_label(store, stream) for stream in STREAMS}
    said: dict[str, str] = {}
    begun: dict[str, tuple[str, int]] = {}
    for child in children:
        for word, *rest in child.lines():
            if word == "begun":
                begun[rest[0]] = rest[1], int(rest[2])
            elif word in ("committed", "aborted"):
                said[rest[0]] = word
    counts["transactions committed"] = len(committed & begun.keys())
    counts["transactions aborted or left"] = len(begun.keys() - committed)
    found = [
        f"{ident} was reported as {word}"
        for ident, word in said.items()
        if (word == "committed") != (ident in committed)
    ]
    for ident, (label, events) in begun.items():
        expected = list(range(events)) if ident in committed else []
        found += [
            f"{stream} has {there[stream].get(label, [])} of transaction {ident} ({label}), not {expected}"
            for stream in STREAMS
            if sorted(there[stream].get(label, [])) != expected
        ]
    unexpected = set[str]().union(*there.values()) - {label for label, _ in begun.values()}
    return [f"transactions: {text}" for text in [*found, *(f"{label} was never begun" for label in sorted(unexpected))]]


def _by_label(store: ab.Store, stream: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for body in _bodies(store, stream):
        label, _, number = body.decode().rpartition("|")
        found[label].append(int(number))
    return found


def _bodies(store: ab.Store, stream: str) -> Iterator[bytes]:
    with store.reader(stream) as reader:
        for event in reader:
            yield event.body
