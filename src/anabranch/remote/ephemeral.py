"""The ephemeral streams that a client holds through a broker."""

from __future__ import annotations

from typing import Any

from anabranch.catalog.state.ephemeral import Holder
from anabranch.remote.verbs import Caller, Owner, RemoteNoun
from anabranch.streams.ephemeral.hold import HolderState
from anabranch.streams.ephemeral.keep_alive import Held, Holds
from anabranch.wire.values import Handle
from anabranch.wire.verbs import VERBS


class RemoteHolds(Holds):
    """All that one remote store holds."""

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller.runtime, "renewal of remote holds")
        self._caller = caller

    def register(self, handle: Handle) -> Held:
        """Register a hold that the broker began. Raises Closed."""
        return self.add(handle.fields["stream"], handle.fields["name"], handle.fields["holder"])

    def _renewed(self, held: Held) -> tuple[HolderState, Holder]:
        state, holder = self._call("hold.renew", held)
        return state, holder

    def _released(self, held: Held) -> bool:
        return bool(self._call("hold.leave", held))

    def _call(self, verb: str, held: Held) -> Any:
        return self._caller.call(VERBS[verb], {"stream": held.id, "holder": held.holder})


class RemoteEphemeral(RemoteNoun):
    """`store.ephemeral` of a remote store."""

    def __init__(self, own: Owner) -> None:
        super().__init__(own)
        self._holds = RemoteHolds(own.caller)

    def close(self) -> None:
        """Leave the held streams. A second call is harmless."""
        self._holds.close()
