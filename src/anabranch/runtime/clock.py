"""The clock port: wall time and monotonic time."""

from __future__ import annotations

import time
from typing import Protocol

from anabranch.model.ids import Micros


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for durations."""

    def now(self) -> Micros:
        """µs since the Unix epoch, UTC. May jump."""

    def monotonic(self) -> float:
        """Seconds from an unknown origin. Never goes back."""


class MachineClock:
    """The machine's wall time, whatever clock a process was given; its monotonic time is that of the process."""

    def __init__(self, process: Clock) -> None:
        self._process = process

    def now(self) -> Micros:
        return SystemClock().now()

    def monotonic(self) -> float:
        return self._process.monotonic()


class SystemClock:
    """`Clock` of the machine."""

    def now(self) -> Micros:
        return Micros(time.time_ns() // 1000)

    def monotonic(self) -> float:
        return time.monotonic()
