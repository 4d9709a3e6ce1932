"""How far a hot standby is behind the batches that its leader plans, and whether it could take over. No I/O."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["StandbyLag"]

_BATCHES: Final = 2  # one runs here, and one there
_READY_S: Final = 5.0  # the time that a warm spare driver needs, on an idle machine
_LOST_S: Final = 15.0


class StandbyLag:
    """Of one statement. `repeated` is the first batch that the standby runs, which takes longest."""

    def __init__(self, repeated: int) -> None:
        self._repeated = repeated
        self._seen: deque[tuple[int, float]] = deque()  # what was planned, and when that was first seen
        self._is_near = False

    def is_near(self, planned: int, done: int, now_s: float) -> bool:
        """True if it is at most two batches behind, or was in the last seconds: less than a start would take, and then
        it has the processor for itself. `planned` is the last batch that the leader has planned, `done` the last one
        that the standby is done with; `now_s` never falls."""
        if not self._seen or planned > self._seen[-1][0]:
            self._seen.append((planned, now_s))
        while self._seen and self._seen[0][0] <= done:
            self._seen.popleft()
        lag_s = now_s - self._seen[0][1] if self._seen else 0.0
        within_s = _LOST_S if self._is_near else _READY_S
        self._is_near = done >= self._repeated and (planned - done <= _BATCHES or lag_s <= within_s)
        return self._is_near
