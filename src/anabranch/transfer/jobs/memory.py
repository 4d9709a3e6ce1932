"""Measures how many bytes a job holds in memory, so that its bound can be stated and tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.runtime.tasks import Tasks


class MemoryGauge:
    """Counts bytes that were read and not yet written; `peak` is the maximum so far. Thread-safe."""

    def __init__(self, tasks: Tasks) -> None:
        self._lock = tasks.lock()
        self.held = 0
        self.peak = 0

    @contextmanager
    def holding(self) -> Iterator[HeldMemory]:
        """A context: bytes added within it count as held, and are released at its end."""
        held = HeldMemory(self)
        try:
            yield held
        finally:
            self.add(-held.bytes)

    def add(self, count: int) -> None:
        """Add to the number of bytes held; negative to release."""
        with self._lock:
            self.held += count
            self.peak = max(self.peak, self.held)


class HeldMemory:
    """The bytes that one step holds."""

    def __init__(self, memory: MemoryGauge) -> None:
        self._memory = memory
        self.bytes = 0

    def add(self, count: int) -> None:
        """Hold this many more bytes."""
        self.bytes += count
        self._memory.add(count)
