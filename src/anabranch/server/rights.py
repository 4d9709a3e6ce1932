"""Checks a caller's right repeatedly during a call that reads or appends for a long time."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch import limits
from anabranch.model.ids import StreamId
from anabranch.security.guard import Guard, Operation, Principal
from anabranch.store import Store


@dataclass(slots=True)
class StreamRight:
    """The right of a caller to do `operation` to a stream, which was checked when the call began. `verb` is
    the name of the call for the audit."""

    store: Store
    guard: Guard
    principal: Principal
    stream: StreamId
    operation: Operation
    verb: str = field(kw_only=True)
    checked_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.checked_at = self.store.runtime.clock.monotonic()

    def is_due(self) -> bool:
        """True if the last check was more than `limits.RIGHTS_RECHECK_S` ago."""
        return self.store.runtime.clock.monotonic() - self.checked_at > limits.RIGHTS_RECHECK_S

    def check(self) -> None:
        """Check the right by the stream's present name if a check is due: the stream may have been moved to a scope in
        which the caller has no rights. Reads the catalog. Raises PermissionDenied, Unauthenticated, StreamNotFound."""
        if self.is_due():
            name = self.store.streams.get(self.stream).name
            self.guard.authorize(self.principal, self.operation, str(name), verb=self.verb)
            self.checked_at = self.store.runtime.clock.monotonic()
