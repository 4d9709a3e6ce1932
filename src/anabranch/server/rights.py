"""Checks again and again, while events are sent, that their caller may read them."""

from __future__ import annotations

from anabranch import limits
from anabranch.model.ids import StreamId
from anabranch.security.guard import Guard, Principal
from anabranch.store import Store


class RightToRead:
    """The right of a caller to read a stream, which was checked when the call began."""

    def __init__(self, store: Store, guard: Guard, principal: Principal, stream: StreamId) -> None:
        self._store = store
        self._guard = guard
        self._principal = principal
        self._stream = stream
        self._clock = store.runtime.clock
        self._checked_at = self._clock.monotonic()

    def is_due(self) -> bool:
        """True if the last check was more than `limits.RIGHTS_RECHECK_S` ago."""
        return self._clock.monotonic() - self._checked_at > limits.RIGHTS_RECHECK_S

    def check(self) -> None:
        """Check it by the stream's present name, if that is due; this reads the catalog. Raises PermissionDenied,
        Unauthenticated, StreamNotFound."""
        if self.is_due():
            name = self._store.streams.get(self._stream).name
            self._guard.authorize(self._principal, "read", str(name), verb="read")
            self._checked_at = self._clock.monotonic()
