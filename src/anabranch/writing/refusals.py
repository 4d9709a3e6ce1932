"""The refusals of one writer: which ones the next `flush` raises, and which ones its caller has not seen, so that
`close` raises them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from anabranch import limits
from anabranch.errors import AnabranchError


class Refusals:
    """Refusals in the order in which they came. Errors are compared by identity: one error that refused several batches
    is raised to the caller once. `add` needs the queue's lock; the others are for any thread."""

    def __init__(self) -> None:
        self.first: AnabranchError | None = None  # since the last flush
        self._unseen: dict[int, AnabranchError] = {}
        self._seen: deque[AnabranchError] = deque(maxlen=limits.REFUSALS_KEPT)
        self._overflow: AnabranchError | None = None  # the first refusal that did not fit the limit

    @property
    def unseen(self) -> AnabranchError | None:
        """The first refusal since the last flush that was not raised to the caller."""
        return next(iter(list(self._unseen.values())), self._overflow)

    def add_all(self, errors: Iterable[AnabranchError]) -> None:
        """Add refusals. May be repeated."""
        for error in errors:
            self.add(error)

    def add(self, error: AnabranchError) -> None:
        """Add a refusal. May be repeated."""
        self.first = self.first or error
        if any(each is error for each in self._seen):
            return
        if len(self._unseen) < limits.REFUSALS_KEPT:
            self._unseen[id(error)] = error
        else:
            self._overflow = self._overflow or error

    def mark_seen(self, error: AnabranchError) -> None:
        """Record that an error was raised to the caller."""
        self._seen.append(error)
        self._unseen.pop(id(error), None)

    def clear(self) -> None:
        """Record that a flush has reported a refusal to the caller."""
        if self.first is not None:
            self._seen.append(self.first)
        self.first = self._overflow = None
        self._unseen.clear()
