"""How many bytes a job holds in memory, so that its bound can be stated and tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.runtime.tasks import Tasks


class Gauge:
    """Counts bytes that were read and are not yet written; `peak` is the most there ever were. Thread-safe."""

    def __init__(self, tasks: Tasks) -> None:
        self._lock = tasks.lock()
        self.held = 0
        self.peak = 0

    @contextmanager
    def holding(self) -> Iterator[Held]:
        """Within this context, what is added counts; at its end it is let go."""
        held = Held(self)
        try:
            yield held
        finally:
            self.add(-held.bytes)

    def add(self, count: int) -> None:
        """Hold so many bytes more, or less."""
        with self._lock:
            self.held += count
            self.peak = max(self.peak, self.held)


class Held:
    """What one step holds."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self.bytes = 0

    def add(self, count: int) -> None:
        """Hold so many bytes more."""
        self.bytes += count
        self._gauge.add(count)
