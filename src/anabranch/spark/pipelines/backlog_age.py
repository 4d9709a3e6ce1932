"""How long ago the oldest event came that is still to be read, from repeated counts. Needs no Spark."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["BacklogAge"]

_SAMPLES_MAX: Final = 2048


class BacklogAge:
    """Remembers when the number of events of the sources rose. Events of before the first call count from then on."""

    def __init__(self) -> None:
        self._rises: deque[tuple[float, int]] = deque()  # when there were first this many events

    def measure(self, read: int, lag: int, now_s: float) -> float:
        """The age in s of the oldest unread event; `read` and `lag` count the events that are read, and still unread."""
        total = read + lag
        if not self._rises or total > self._rises[-1][1]:
            self._rises.append((now_s, total))
        while self._rises and self._rises[0][1] <= read:
            self._rises.popleft()
        if len(self._rises) > _SAMPLES_MAX:  # the oldest is the answer, so every other one of the rest goes
            self._rises = deque(list(self._rises)[::2])
        return now_s - self._rises[0][0] if lag and self._rises else 0.0
