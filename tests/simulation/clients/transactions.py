"""Transactions: over several streams, used by several clients, abandoned, expired, swept. All events of one are
visible, or none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from anabranch import limits
from anabranch.errors import AppendUncertain, InvalidArgument, NotFound, StoreUnavailable, TransactionAborted
from anabranch.model.transaction import TransactionInfo, TransactionState
from tests.simulation.clients.arena import EXPECTED, KEYS, Arena, Asked, named
from tests.simulation.transactions import Account, Kept, Line

if TYPE_CHECKING:
    from anabranch.store import Store
    from anabranch.transactions.transaction import Transaction

__all__ = ["transact"]

_LEASES_S: Final = (0.05, 0.2, 0.5)
_TRIES: Final = 4  # of a commit or a flush whose answer is lost
_RESUMED: Final = 6  # of the last transactions, one of which another client continues


def transact(arena: Arena, store: Store, name: str) -> None:
    """Begins transactions or continues those of others; writes to some streams, flushes, pings, pauses; then
    commits, aborts, or leaves them to other clients."""
    accounts = _accounts(arena)
    arena.promises["transactions are what was told of them"] = partial(_true, arena)
    for _ in arena.turns(store, 8):
        with suppress(*EXPECTED, NotFound):
            open_ones = [account for account in accounts[-_RESUMED:] if account.fate is None]
            if open_ones and arena.chance(0.4):
                account = arena.rng.choice(open_ones)
                part = _resumed(arena, store, account, f"{name}.{arena.serial()}")
            else:
                part = _begun(arena, store, f"{name}.{arena.serial()}")
            if part is not None:
                part.work()


def _accounts(arena: Arena) -> list[Account]:
    made: list[Account] = []
    return arena.shared("transactions", lambda: made)


def _begun(arena: Arena, store: Store, label: str) -> _Part:
    txn = store.transaction(lease_s=arena.rng.choice(_LEASES_S))
    account = Account(txn.id, arena.recorder)
    _accounts(arena).append(account)
    arena.asked[f"transaction {txn.id}"] = Asked(
        lambda each: _info(each, account), lambda _, info: _settled(arena, account, info)
    )
    return _Part(arena, store, label, account, txn)


def _resumed(arena: Arena, store: Store, account: Account, label: str) -> _Part | None:
    try:
        txn = store.transaction(account.ident)
    except TransactionAborted:
        _note(arena, account.aborted())
    except InvalidArgument:
        _note(arena, account.committed([]))
    else:
        arena.done["transaction resumed"] += 1
        return _Part(arena, store, label, account, txn)
    return None


class _Part:
    """What one client does for a transaction. `label` is in the names of its events, beside their stream's name."""

    def __init__(self, arena: Arena, store: Store, label: str, account: Account, txn: Transaction) -> None:
        self._arena = arena
        self._store = store
        self._label = label
        self._account = account
        self._txn = txn
        self._own: list[Line] = []  # not confirmed by any flush of this client
        self._doubtful = False  # a commit of them may have taken place

    def work(self) -> None:
        """Does everything up to the end of the transaction, whichever client causes that."""
        try:
            for _ in range(self._arena.rng.randrange(1, 6)):
                self._step(self._arena.rng.random())
            self._end(self._arena.rng.random())
        except TransactionAborted as exc:
            self._aborted(exc)
        except InvalidArgument as exc:
            if "already committed" not in str(exc):
                raise
            _note(self._arena, self._account.committed([]))
            self._leave()
        except EXPECTED:
            self._leave()
            raise

    def _step(self, draw: float) -> None:
        if draw < 0.6:
            self._write()
        elif draw < 0.8:
            self._flush()
        elif draw < 0.9:
            self._txn.ping()
        else:
            self._store.runtime.tasks.sleep(self._arena.rng.random() * 0.3)

    def _end(self, draw: float) -> None:
        if draw < 0.65:
            self._commit()
        elif draw < 0.8:
            self._txn.abort()
            _note(self._arena, self._account.aborted())
            self._arena.done["transaction aborted"] += 1
        else:
            self._leave()
            self._arena.done["transaction left"] += 1

    def _write(self) -> None:
        arena = self._arena
        for _ in range(arena.rng.randrange(1, 4)):
            ledger = arena.pick()
            stream = next(stream for stream, first in list(arena.names.items()) if first == ledger.label)
            writer = self._txn.writer(ledger.stream)
            label = f"{self._label}@{ledger.label}"
            events = [ledger.attempt(label, arena.rng.choice(KEYS)) for _ in range(arena.rng.randrange(1, 6))]
            lines = [Line(ledger, stream, event, named(stream, event.payload())) for event in events]
            self._account.lines += lines
            self._own += lines
            payloads = [event.payload(arena.rng.choice((0, 20, 200))) for event in events]
            if arena.chance(0.3):
                writer.write_batch(pa.table({"key": [event.key for event in events], "payload": payloads}))
            else:
                for event, payload in zip(events, payloads, strict=True):
                    writer.write(payload, key=event.key)

    def _flush(self) -> None:
        unit = f"{self._account.ident} flush {self._arena.serial()}"
        lines = list(self._own)
        self._account.flushing(lines, unit)
        _insisted(self._txn.flush)
        self._account.flushed(lines, unit)
        self._own.clear()
        self._arena.done["transaction flushed"] += 1

    def _commit(self) -> None:
        unit = f"{self._account.ident} commit {self._arena.serial()}"
        self._account.commit(list(self._own), unit)
        try:
            _insisted(self._txn.commit)
        except (AppendUncertain, StoreUnavailable):
            self._doubtful = True
            raise
        except Exception:
            self._account.answered(unit)
            raise
        self._account.answered(unit)
        _note(self._arena, self._account.committed(self._own))
        self._arena.done["transaction committed"] += 1

    def _leave(self) -> None:
        """Events that were not flushed are lost with this client."""
        for line in self._own:
            if line.kept is Kept.WRITTEN and not self._doubtful:
                self._account.drop(line)

    def _aborted(self, error: TransactionAborted) -> None:
        _note(self._arena, self._account.aborted())
        self._arena.done["transaction ran out"] += 1
        info, now = _info(self._store, self._account), self._store.runtime.clock.now()
        swept = error.reason is not None and error.reason.startswith("its lease expired")
        if swept and info is not None and now + limits.CLOCKS_DIFFER_US < info.expires_at:
            left = (info.expires_at - now) / 1e3
            self._arena.violations.append(f"transaction {info.id} was swept, {left:.0f} ms before its lease runs out")


def _insisted(ask: object) -> None:
    """Repeats a request whose answer is lost."""
    assert callable(ask)
    for _ in range(_TRIES - 1):
        with suppress(AppendUncertain, StoreUnavailable):
            ask()
            return
    ask()


def _info(store: Store, account: Account) -> TransactionInfo | None:
    return next((info for info in store.transactions.list() if info.id == account.ident), None)


def _settled(arena: Arena, account: Account, info: TransactionInfo | None) -> None:
    """Settles outcomes when all clients have ended: what is not committed by now never will be."""
    if info is not None and info.state is TransactionState.COMMITTED:
        _note(arena, account.found_committed())
    else:
        _note(arena, account.aborted())


def _note(arena: Arena, wrong: str | None) -> None:
    if wrong is not None:
        arena.violations.append(wrong)


def _true(arena: Arena, store: Store) -> Sequence[str]:
    """Abandoned transactions are swept once their leases have expired, and each is in the state that was reported."""
    store.runtime.tasks.sleep(2 * _LEASES_S[-1])
    store.collect()
    infos = {info.id: info for info in store.transactions.list()}
    left = [f"transaction {info.id} is open" for info in infos.values() if info.state is TransactionState.OPEN]
    return left + [text for account in _accounts(arena) for text in account.judge(infos.get(account.ident))]
