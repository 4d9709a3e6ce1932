"""The store under torture, as every process opens it."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import anabranch as ab
from anabranch import limits
from anabranch.model.ids import Micros
from anabranch.runtime.clock import SystemClock
from anabranch.runtime.settings import Settings
from tests.clocks import runtime_by

STREAMS = ("t/one", "t/two")
LEASE_S = 3.0  # of work on the store, of transactions and of readers: a process may be stopped for longer
_JUMP_US = 2 * 3600 * 1_000_000  # a clock is set forward or back by at most this


class JumpingClock(SystemClock):
    """The machine's clock, until SIGUSR1 sets it to another time. Monotonic time is not affected, as in reality."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._offset = 0
        signal.signal(signal.SIGUSR1, self._jump)

    def _jump(self, number: int, frame: FrameType | None) -> None:
        self._offset = self._rng.randint(-_JUMP_US, _JUMP_US)

    def now(self) -> Micros:
        """See `Clock.now`."""
        return Micros(super().now() + self._offset)


@dataclass(frozen=True)
class StoreLocation:
    """The location of the store. Commits are small and pipelined, so that faults hit many different moments."""

    url: str
    blobs: str | None = None
    settings: Settings = field(
        default_factory=lambda: Settings(commit_bytes_max=200_000, pipeline_bytes_min=20_000, inline_bytes_max=4_096)
    )

    @property
    def on_disk(self) -> Path | None:
        """The folder with the catalog, if it is SQLite's, and the blobs, if they are in a folder; None if the store
        keeps nothing in folders."""
        if self.blobs is None:
            return Path(self.url)
        return None if "://" in self.blobs else Path(self.blobs)

    def open(self, seed: int) -> ab.Store:
        """Opens the store, with a clock that jumps at SIGUSR1. For the main thread only."""
        setattr(limits, "LEASE_US", round(LEASE_S * 1_000_000))  # noqa: B010 - to the type checker it is final
        runtime = runtime_by(JumpingClock(seed), settings=self.settings)
        return ab.connect(self.url, blobs=self.blobs, runtime=runtime, create=True)
