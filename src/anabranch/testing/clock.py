"""A clock for tests that check what happens as time passes: leases, retention, garbage collection."""

from __future__ import annotations

from typing import Final

from anabranch.model.ids import Micros

__all__ = ["ManualClock"]

_SECOND_US: Final = 1_000_000


class ManualClock:
    """A `runtime.clock.Clock` that moves only when it is told to, wall time and monotonic time together.

    Hand it to a store as `Runtime(clock=clock, catalog_clock=clock)`: the catalog has its own clock, by default its
    server's."""

    def __init__(self, now_us: int = 1_700_000_000 * _SECOND_US) -> None:
        self.micros = now_us  # µs since the Unix epoch; may be set

    def now(self) -> Micros:
        """See `Clock.now`."""
        return Micros(self.micros)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return self.micros / _SECOND_US

    def pass_time(self, micros: int) -> None:
        """Moves the clock forward by this many µs."""
        self.micros += micros
