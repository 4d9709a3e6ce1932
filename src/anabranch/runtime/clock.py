"""The clock port."""

from __future__ import annotations

import time
from typing import Protocol

from anabranch.model.ids import Micros


class Clock(Protocol):
    """Wall time for stamps, monotonic time for durations."""

    def now(self) -> Micros:
        """µs since the Unix epoch, UTC. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds from an unknown origin. Never goes back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> Micros:
        """See `Clock.now`."""
        return Micros(time.time_ns() // 1000)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return time.monotonic()
