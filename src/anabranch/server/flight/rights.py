"""Checks again and again, while events are sent, that their caller may read them."""

from __future__ import annotations

from anabranch import limits
from anabranch.model.ids import StreamId
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker


class RightToRead:
    """The right of a caller to read a stream, which was checked when the call began."""

    def __init__(self, broker: Broker, principal: Principal, stream: StreamId) -> None:
        self._broker = broker
        self._principal = principal
        self._stream = stream
        self._clock = broker.store.runtime.clock
        self._checked_at = self._clock.monotonic()

    def check(self) -> None:
        """Check it by the stream's present name, if the last check was more than `limits.FLIGHT_RECHECK_S` ago. Raises
        PermissionDenied, Unauthenticated, StreamNotFound."""
        now = self._clock.monotonic()
        if now - self._checked_at > limits.FLIGHT_RECHECK_S:
            name = self._broker.store.streams.get(self._stream).name
            self._broker.guard.authorize(self._principal, "read", str(name), verb="read")
            self._checked_at = now
