"""The ephemeral streams that this process holds, and the task that renews its holds while it lives.

`Holds` is what both kinds share: `HeldStreams` records holds in the catalog, `anabranch.remote.ephemeral` through a
broker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from types import TracebackType

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.catalog.state.ephemeral import Holder
from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError, Closed
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.runtime.log_events import HOLD_LOST, HOLD_NOT_RENEWED
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.streams.ephemeral.hold import HolderState, leave_holders, renew_hold

_RENEWALS_PER_LEASE = 4  # so that some may fail


class Held(Displayed):
    """An ephemeral stream that this process holds: until `leave`, the end of the `with` block, or the end of the store.

    The last holder to leave deletes the stream; see `Ephemeral.create`. `id` does not change with renames. `state` says,
    with a delay of some seconds, whether it is held, was made permanent, or is gone: deleted, or removed because this
    process was suspended for too long.
    """

    def __init__(self, holds: Holds, stream: StreamId, name: StreamName, holder: Holder) -> None:
        self._holds = holds
        self.id = stream
        self.name = name  # as of when the hold began
        self.holder = holder
        self.state = HolderState.HELD
        self.left = False

    def _facts(self) -> Mapping[str, object]:
        return {"stream": str(self.name), "state": "left" if self.left else self.state.value}

    def leave(self) -> None:
        """Stop holding the stream. If it has no other holders and was not made permanent, it is deleted when this
        returns. A second call is harmless; if the first call was interrupted or raised, the second does the remaining
        steps. Raises StoreUnavailable, AppendUncertain: then the stream is removed when the lease expires, unless it
        was deleted already."""
        self._holds.leave(self)

    def __enter__(self) -> Held:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(AnabranchError):  # the lease expires
            self.leave()

    def __str__(self) -> str:
        return str(self.name)


class Holds(ABC):
    """The streams that are held for one store. Thread-safe. A task named `task` renews them while any is held."""

    def __init__(self, runtime: Runtime, task: str) -> None:
        self._lock = runtime.tasks.lock()
        # One renewal or leave at a time, so that nothing is renewed after `leave`.
        self._call_lock = runtime.tasks.lock()
        self._held: dict[str, Held] = {}
        self._closed = False
        self._loop = Periodic(runtime, task, limits.EPHEMERAL_LEASE_US / _RENEWALS_PER_LEASE / 1e6, self._renew_all)

    @abstractmethod
    def _renewed(self, held: Held) -> tuple[HolderState, Holder]:
        """Renew a hold. Returns the state of the stream, and the holder from now on if it is still held."""

    @abstractmethod
    def _released(self, held: Held) -> bool:
        """End a hold. Returns True if that deleted the stream."""

    def add(self, stream: StreamId, name: StreamName, holder: Holder) -> Held:
        """Register a hold that the catalog records. Raises Closed."""
        held = Held(self, stream, name, holder)
        with self._lock:
            # A repeated request returns what it held before.
            held = self._held.setdefault(holder.token, held)
            if not self._closed:
                self._loop.start()
                return held
        self.leave(held)
        raise Closed("store")

    def leave(self, held: Held) -> None:
        """See `Held.leave`."""
        if held.holder.token not in self._held:
            return
        held.left = True
        with self._call_lock:
            if self._released(held):
                held.state = HolderState.GONE
        with self._lock:
            self._forget(held)

    def close(self) -> None:
        """Leave all, and end the task. Holds that can't be released expire by themselves. A second call is harmless."""
        with self._lock:
            self._closed = True
            held = list(self._held.values())
        self._loop.stop()
        for each in held:
            with suppress(AnabranchError):
                self.leave(each)
        self._loop.close()

    def _forget(self, held: Held) -> None:
        """Stop renewing the hold. Needs the lock."""
        self._held.pop(held.holder.token, None)
        if not self._held:
            self._loop.stop()

    def _renew_all(self) -> None:
        with self._lock:
            held = [each for each in self._held.values() if each.state is HolderState.HELD and not each.left]
        for each in held:
            try:
                self._renew(each)
            except AnabranchError as exc:  # tried again before the lease has expired
                HOLD_NOT_RENEWED(stream=each.name, error=exc)

    def _renew(self, held: Held) -> None:
        with self._call_lock:
            if held.left:
                return
            held.state, holder = self._renewed(held)
            if held.state is HolderState.HELD:
                held.holder = holder
            elif held.state is HolderState.GONE:
                HOLD_LOST(stream=held.name)


class HeldStreams(Holds):
    """The streams that one stream manager holds."""

    def __init__(self, catalog: Catalog, runtime: Runtime, changed: Callable[[], None]) -> None:
        super().__init__(runtime, "renewal of holds")
        self._catalog = catalog
        self._runtime = runtime
        self._notify = changed

    def holder(self, token: str, now: Micros) -> Holder:
        """This process as a holder from now on."""
        return Holder(token, self._runtime.process, now, Micros(now + limits.EPHEMERAL_LEASE_US))

    @property
    def streams(self) -> frozenset[StreamId]:
        """The ids of the held streams."""
        with self._lock:
            return frozenset(held.id for held in self._held.values() if not held.left)

    def leave(self, held: Held) -> None:
        """See `Held.leave`."""
        super().leave(held)
        self._notify()

    def hand_over(self, held: Held) -> None:
        """Stop renewing the hold, without leaving."""
        with self._call_lock, self._lock:
            held.left = True
            self._forget(held)

    def _renewed(self, held: Held) -> tuple[HolderState, Holder]:
        until = Micros(self._runtime.clock.now() + limits.EPHEMERAL_LEASE_US)
        holder = replace(held.holder, until=until)
        with self._catalog.writing(held.id) as txn:
            return renew_hold(txn, held.id, holder), holder

    def _released(self, held: Held) -> bool:
        with self._catalog.writing(held.id) as txn:
            return leave_holders(txn, held.id, held.holder.token, self._runtime.clock.now())
