"""Checks a caller's right again and again, while a call lasts: its events are sent, or it appends."""

from __future__ import annotations

from anabranch import limits
from anabranch.model.ids import StreamId
from anabranch.security.guard import Guard, Operation, Principal
from anabranch.store import Store


class StreamRight:
    """The right of a caller to do `operation` to a stream, which was checked when the call began. `verb` is the call."""

    def __init__(
        self, store: Store, guard: Guard, principal: Principal, stream: StreamId, operation: Operation, *, verb: str
    ) -> None:
        self._store = store
        self._guard = guard
        self._principal = principal
        self._stream = stream
        self._operation: Operation = operation
        self._verb = verb
        self._clock = store.runtime.clock
        self._checked_at = self._clock.monotonic()

    def is_due(self) -> bool:
        """True if the last check was more than `limits.RIGHTS_RECHECK_S` ago."""
        return self._clock.monotonic() - self._checked_at > limits.RIGHTS_RECHECK_S

    def check(self) -> None:
        """Check it by the stream's present name, if that is due: the stream may have moved to where the caller has no
        rights. Reads the catalog. Raises PermissionDenied, Unauthenticated, StreamNotFound."""
        if self.is_due():
            name = self._store.streams.get(self._stream).name
            self._guard.authorize(self._principal, self._operation, str(name), verb=self._verb)
            self._checked_at = self._clock.monotonic()
