"""Ephemeral streams that this process holds, and the task that prolongs that for as long as it lives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.errors import AnabranchError, Closed
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task
from anabranch.streams.ephemeral import Holder
from anabranch.streams.hold import Standing, leave_holders, prolong

_PROLONGED = 4  # times in the life of a lease, so that some may fail


class Held:
    """An ephemeral stream that this process holds: until `leave`, the end of the `with` block, or the end of the store.

    Whoever leaves last takes the stream along; see `Streams.ephemeral`. `id` is what no renaming changes. `standing` tells,
    some seconds late, whether it is held, was made lasting, or is gone because somebody deleted it or this process stood
    still for too long.
    """

    def __init__(self, holdings: Holdings, stream: StreamId, name: StreamName, holder: Holder) -> None:
        self._holdings = holdings
        self.id = stream
        self.name = name  # when it was taken hold of
        self.holder = holder
        self.standing = Standing.HELD
        self.left = False

    def leave(self) -> None:
        """Hold it no more; if nobody else does, it is gone when this returns, unless it was made lasting. A second call
        is harmless; where the first was interrupted or raised, it does what is left. Raises StoreUnavailable and its kind:
        then the stream goes when the lease has run out."""
        self._holdings.leave(self)

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(AnabranchError):  # the lease runs out by itself
            self.leave()

    def __str__(self) -> str:
        return str(self.name)


class Holdings:
    """What one stream manager holds. Thread-safe. The task that prolongs it lives as long as there is something to hold."""

    def __init__(self, catalog: Catalog, runtime: Runtime, changed: Callable[[], None]) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._tell = changed
        self._changed = runtime.tasks.condition()
        self._turn = runtime.tasks.lock()  # of transactions, so that nothing is prolonged that was left
        self._held: dict[str, Held] = {}
        self._task: Task | None = None
        self._closed = False

    def holder(self, token: str, now: Micros) -> Holder:
        """This process as a holder from now on."""
        return Holder(token, self._runtime.process, now, Micros(now + limits.EPHEMERAL_LEASE_US))

    @property
    def streams(self) -> frozenset[StreamId]:
        """What is held."""
        with self._changed:
            return frozenset(held.id for held in self._held.values() if not held.left)

    def add(self, stream: StreamId, name: StreamName, holder: Holder) -> Held:
        """Hold what the catalog says that this process holds. Raises Closed."""
        held = Held(self, stream, name, holder)
        with self._changed:
            # A request that is asked again holds what it held before.
            held = self._held.setdefault(holder.token, held)
            if not self._closed:
                if self._task is None:
                    self._task = self._runtime.tasks.spawn("holdings", self._run)
                return held
        self.leave(held)
        raise Closed("store")

    def _prolong_all(self) -> None:
        with self._changed:
            held = [each for each in self._held.values() if each.standing is Standing.HELD and not each.left]
        for each in held:
            with suppress(AnabranchError):  # tried again before the lease has run out
                self._prolong(each)

    def _prolong(self, held: Held) -> None:
        with self._turn:
            if held.left:
                return
            now = self._runtime.clock.now()
            holder = replace(held.holder, until=Micros(now + limits.EPHEMERAL_LEASE_US))
            with self._catalog.writing(held.id) as txn:
                standing = prolong(txn, held.id, holder)
            held.standing = standing
            if standing is Standing.HELD:
                held.holder = holder

    def leave(self, held: Held) -> None:
        """See `Held.leave`."""
        token = held.holder.token
        if token not in self._held:
            return
        held.left = True
        with self._turn, self._catalog.writing(held.id) as txn:
            gone = leave_holders(txn, held.id, token, self._runtime.clock.now())
        if gone:
            held.standing = Standing.GONE
        self._tell()
        with self._changed:
            self._held.pop(token, None)
            self._changed.notify_all()

    def close(self) -> None:
        """Leave all, and end the task. What can't be left runs out by itself. A second call is harmless."""
        with self._changed:
            self._closed = True
            held, task = list(self._held.values()), self._task
            self._changed.notify_all()
        for each in held:
            with suppress(AnabranchError):
                self.leave(each)
        if task is not None:
            task.join()

    def _run(self) -> None:
        while self._rest(limits.EPHEMERAL_LEASE_US / _PROLONGED / 1e6):
            self._prolong_all()

    def _rest(self, seconds: float) -> bool:
        """Wait for the next time; False, and the task is over, where nothing is held."""
        clock = self._runtime.clock
        until = clock.monotonic() + seconds
        with self._changed:
            while self._held and not self._closed and (left := until - clock.monotonic()) > 0:
                self._changed.wait(left)
            if self._held and not self._closed:
                return True
            self._task = None
            return False
