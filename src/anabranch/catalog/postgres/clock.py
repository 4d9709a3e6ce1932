"""The server's clock, as a process knows it without asking for each time."""

from __future__ import annotations

from typing import Final

from anabranch.model.ids import Micros
from anabranch.runtime.clock import Clock

# How long a reading is used before a later one may replace it.
_KEPT_S: Final = 60.0
_DUE_S: Final = 1.0


class ServerClock:
    """`runtime.clock.Clock` whose wall time is the server's. Between two readings it continues with the monotonic
    clock of this process, whose wall clock has no influence. Thread-safe.

    A reading is as old as its answer took to arrive, so the clock is late by that time. It is ahead of the server's
    clock by at most the drift of the two clocks within a minute. Within a minute, the least late reading counts."""

    def __init__(self, process: Clock) -> None:
        self._process = process
        self._reading: tuple[float, float] | None = (
            None  # the server's time at monotonic zero in µs, and when it was read
        )
        self._read_s = 0.0

    @property
    def due(self) -> bool:
        """True if the last reading is so old that the next statement should bring one."""
        return self._reading is None or self._process.monotonic() - self._read_s >= _DUE_S

    def observe(self, server_us: int) -> None:
        """Take a reading of the server's clock that has just arrived."""
        now_s = self._process.monotonic()
        zero, reading = server_us - now_s * 1e6, self._reading
        self._read_s = now_s
        if reading is None or zero >= reading[0] or now_s - reading[1] >= _KEPT_S:
            self._reading = (zero, now_s)

    def now(self) -> Micros:
        assert self._reading is not None, "the catalog reads the clock when it is opened"
        return Micros(round(self._reading[0] + self._process.monotonic() * 1e6))

    def monotonic(self) -> float:
        return self._process.monotonic()
