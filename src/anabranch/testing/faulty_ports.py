"""A catalog and a blob store, around real ones, that fail by a plan: for tests of an adapter or of code that uses it.

    plan = FaultPlan()
    gate = Gate(plan)
    store = Store(FaultyCatalog(catalog, gate), FaultyBlobs(blobs, gate), runtime)
    plan.add("catalog.commit", Action.UNCERTAIN_LANDED)  # the next append is stored, and its answer is lost
    plan.add("blobs.put", DiskFull("no space is left"), times=2)

They only mark where calls begin and end; `faults.Gate` defines how a call goes wrong. The calls are named
`catalog.reading`, `catalog.writing`, `catalog.commit`, `catalog.token`, `catalog.close`, `reading.METHOD` and
`writing.METHOD` inside a transaction, `writing.commit` when it ends, `blobs.put`, `blobs.get`, `blobs.size`,
`blobs.list` and `blobs.delete`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import pyarrow as pa

from anabranch.blobs.port import BlobInfo, Blobs
from anabranch.catalog.port import Catalog, Reading, Subject, Writing
from anabranch.errors import AppendUncertain, StoreUnavailable
from anabranch.model.append import Commit, Verdict
from anabranch.runtime.clock import Clock
from anabranch.runtime.tasks import Lock
from anabranch.testing.faults import DELAY_S_MAX, Action, Gate

__all__ = ["FaultyBlobs", "FaultyCatalog"]

T = TypeVar("T")


class FaultyCatalog:
    """A catalog behind a gate; see `catalog.port.Catalog`.

    A crash inside a transaction rolls it back. Leaving a transaction is a call of its own (`writing.commit`): before it
    none of the changes are made, after it all are. A simulator in which waiting for another's transaction must not
    block the thread hands in `turn`, a lock held around transactions.
    """

    def __init__(self, inner: Catalog, gate: Gate, turn: Lock | None = None) -> None:
        self.inner = inner
        self._gate = gate
        self._turn: AbstractContextManager[object] = nullcontext() if turn is None else turn

    @property
    def clock(self) -> Clock:
        """See `Catalog.clock`."""
        return self.inner.clock

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """See `Catalog.reading`."""
        self._gate.after("catalog.reading", self._gate.before("catalog.reading"))
        with self.inner.reading() as snapshot:
            yield cast(Reading, _GatedTransaction(self._gate, "reading", snapshot))

    @contextmanager
    def writing(self, on: Subject | None = None) -> Iterator[Writing]:
        """See `Catalog.writing`."""
        begun = self._gate.before("catalog.writing")
        if begun is Action.UNCERTAIN_LOST:
            raise StoreUnavailable("a planned fault makes the catalog unavailable")
        with self._turn:
            with self.inner.writing(on) as transaction:
                self._gate.after("catalog.writing", begun)
                yield cast(Writing, _GatedTransaction(self._gate, "writing", transaction))
                action = self._gate.before("writing.commit")
                if action is Action.UNCERTAIN_LOST:  # leaving the transaction by an error rolls it back
                    raise AppendUncertain("a planned fault lost this transaction and its answer")
            if action is Action.UNCERTAIN_LANDED:
                raise AppendUncertain("a planned fault lost the answer to this transaction")
            self._gate.after("writing.commit", action)

    def commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        """See `Catalog.commit`."""
        action = self._gate.before("catalog.commit")
        with self._turn:
            if action is Action.UNCERTAIN_LOST:
                raise AppendUncertain("a planned fault lost this commit and its answer")
            if action is Action.UNCERTAIN_LATE:
                # A session that dies with its process drops requests that were not yet sent.
                self._gate.later("catalog.commit", lambda: self._commit(commit), survives=False)
                raise AppendUncertain("a planned fault delays this commit beyond its caller's patience")
            verdicts = self.inner.commit(commit)
            if action is Action.UNCERTAIN_LANDED:
                raise AppendUncertain("a planned fault lost the answer to this commit")
        if action is Action.DUPLICATE:
            self._gate.pause(DELAY_S_MAX)
            verdicts = self._commit(commit)
        self._gate.after("catalog.commit", action)
        return verdicts

    def _commit(self, commit: Commit) -> tuple[tuple[Verdict, ...], ...]:
        with self._turn:
            return self.inner.commit(commit)

    def token(self) -> int:
        """See `Catalog.token`."""
        return self._gate.call("catalog.token", self.inner.token)

    def on_change(self, changed: Callable[[], None]) -> bool:
        """See the port. Without notifications, so that a run depends on its seed alone."""
        return False

    def translated(self, error: Exception) -> Exception:
        """See the port."""
        return self.inner.translated(error)

    def close(self) -> None:
        """See `Catalog.close`."""
        self._gate.call("catalog.close", self.inner.close)


class _GatedTransaction:
    """A transaction each of whose methods goes through the gate. Generic, so that a port may grow."""

    def __init__(self, gate: Gate, prefix: str, inner: object) -> None:
        self._gate = gate
        self._prefix = prefix
        self._inner = inner

    def __getattr__(self, method: str) -> Callable[..., Any]:
        target: Callable[..., Any] = getattr(self._inner, method)
        name = f"{self._prefix}.{method}"
        return lambda *args, **kwargs: self._gate.call(name, lambda: target(*args, **kwargs))


class FaultyBlobs:
    """A blob store behind a gate; see `blobs.port.Blobs`."""

    def __init__(self, inner: Blobs, gate: Gate) -> None:
        self.inner = inner
        self._gate = gate

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """See `Blobs.put`."""
        action = self._gate.before("blobs.put")
        if action is Action.CRASH_MIDWAY:
            self.inner.put(key, chunks[: len(chunks) // 2])
            self._gate.crash()
        if action is Action.UNCERTAIN_LATE:
            self._gate.later("blobs.put", lambda: self.inner.put(key, chunks), survives=True)
        else:
            self._unless_lost(action, lambda: self.inner.put(key, chunks))
        if action is Action.DUPLICATE:
            self._gate.later("blobs.put", lambda: self.inner.put(key, chunks), survives=True)
        self._answer("blobs.put", action)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """See `Blobs.get`."""
        return self._call("blobs.get", lambda: self.inner.get(key, offset, length))

    def size(self, key: str) -> int | None:
        """See `Blobs.size`."""
        return self._call("blobs.size", lambda: self.inner.size(key))

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """See `Blobs.list`. The listing is as of one moment."""
        return iter(self._call("blobs.list", lambda: [*self.inner.list(prefix)]))

    def delete(self, key: str) -> None:
        """See `Blobs.delete`."""
        action = self._gate.before("blobs.delete")
        self._unless_lost(action, lambda: self.inner.delete(key))
        if action is Action.DUPLICATE:
            self.inner.delete(key)
        self._answer("blobs.delete", action)

    def _call(self, name: str, effect: Callable[[], T]) -> T:
        action = self._gate.before(name)
        result = effect()
        self._answer(name, action)
        return result

    def _unless_lost(self, action: Action, effect: Callable[[], object]) -> None:
        if action is not Action.UNCERTAIN_LOST:
            effect()

    def _answer(self, name: str, action: Action) -> None:
        if action in (Action.UNCERTAIN_LANDED, Action.UNCERTAIN_LOST, Action.UNCERTAIN_LATE):
            raise StoreUnavailable(f"a planned fault lost the answer to {name}")
        self._gate.after(name, action)

    def path(self, key: str) -> str:
        """See `Blobs.path`."""
        return self.inner.path(key)

    def close(self) -> None:
        """See `Blobs.close`."""
        self.inner.close()


def _conforms(catalog: FaultyCatalog, blobs: FaultyBlobs) -> tuple[Catalog, Blobs]:
    """Lets the type checker verify that the wrappers implement the ports."""
    return catalog, blobs
