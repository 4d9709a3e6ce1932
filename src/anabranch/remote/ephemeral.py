"""The ephemeral streams that a client holds through a broker, and the task that renews its holds while it lives."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import Any

from anabranch import limits
from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError, Closed
from anabranch.remote.verbs import Caller, RemoteNoun
from anabranch.runtime.log_events import HOLD_LOST, HOLD_NOT_RENEWED
from anabranch.runtime.periodic import Periodic
from anabranch.streams.ephemeral.hold import HolderState
from anabranch.wire.values import Handle
from anabranch.wire.verbs import VERBS

_RENEWALS_PER_LEASE = 4  # so that some may fail


class RemoteHeld(Displayed):
    """`anabranch.streams.ephemeral.keep_alive.Held` through a broker."""

    def __init__(self, holds: RemoteHolds, handle: Handle) -> None:
        self._holds = holds
        self.id = handle.fields["stream"]
        self.name = handle.fields["name"]
        self.holder = handle.fields["holder"]
        self.state = HolderState.HELD
        self.left = False

    def _facts(self) -> dict[str, object]:
        return {"stream": str(self.name), "state": "left" if self.left else self.state.value}

    def leave(self) -> None:
        """See `Held.leave`."""
        self._holds.leave(self)

    def __enter__(self) -> RemoteHeld:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(AnabranchError):  # the lease expires by itself
            self.leave()

    def __str__(self) -> str:
        return str(self.name)


class RemoteHolds:
    """All that one remote store holds. Thread-safe. The renewal task runs while anything is held."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        tasks = caller.runtime.tasks
        self._lock = tasks.lock()
        self._call_lock = tasks.lock()  # so that nothing is renewed after `leave`
        self._held: dict[str, RemoteHeld] = {}
        self._closed = False
        interval_s = limits.EPHEMERAL_LEASE_US / _RENEWALS_PER_LEASE / 1e6
        self._loop = Periodic(caller.runtime, "renewal of remote holds", interval_s, self._renew_all)

    def add(self, handle: Handle) -> RemoteHeld:
        """Register a hold that the broker began. Raises Closed."""
        held = RemoteHeld(self, handle)
        with self._lock:
            held = self._held.setdefault(handle.id, held)
            if not self._closed:
                self._loop.start()
                return held
        self.leave(held)
        raise Closed("store")

    def leave(self, held: RemoteHeld) -> None:
        """See `Held.leave`."""
        if held.holder.token not in self._held:
            return
        held.left = True
        with self._call_lock:
            if self._call("hold.leave", held):
                held.state = HolderState.GONE
        with self._lock:
            self._held.pop(held.holder.token, None)
            if not self._held:
                self._loop.stop()

    def close(self) -> None:
        """Leave all, and end the task. Holds that can't be released expire by themselves."""
        with self._lock:
            self._closed = True
            held = list(self._held.values())
        self._loop.stop()
        for each in held:
            with suppress(AnabranchError):
                self.leave(each)
        self._loop.close()

    def _call(self, verb: str, held: RemoteHeld) -> Any:
        return self._caller.call(VERBS[verb], {"stream": held.id, "holder": held.holder})

    def _renew_all(self) -> None:
        with self._lock:
            held = [each for each in self._held.values() if each.state is HolderState.HELD and not each.left]
        for each in held:
            try:
                with self._call_lock:
                    if not each.left:
                        each.state, holder = self._call("hold.renew", each)
                        each.holder = holder if each.state is HolderState.HELD else each.holder
            except AnabranchError as exc:  # tried again before the lease has expired
                HOLD_NOT_RENEWED(stream=each.name, error=exc)
            if each.state is HolderState.GONE and not each.left:
                HOLD_LOST(stream=each.name)


class RemoteEphemeral(RemoteNoun):
    """`store.ephemeral` of a remote store."""

    def __init__(self, caller: Caller, own: object, holds: RemoteHolds) -> None:
        super().__init__(caller, own)
        self._holds = holds

    def close(self) -> None:
        """Leave the held streams. A second call is harmless."""
        self._holds.close()
