"""Holds a reader to a rate, which another thread may change while the reader waits."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.core.pace import Pace
from anabranch.errors import InvalidArgument
from anabranch.model.rate import Rate
from anabranch.runtime.ports import Runtime


class Pacing:
    """The rate of one reader, and the wait for it. Thread-safe."""

    def __init__(self, runtime: Runtime, rate: Rate | None) -> None:
        self._clock = runtime.clock
        self._changed = runtime.tasks.condition()
        self._rate: Rate | None = None
        self._pace: Pace | None = None
        self.change(rate)

    @property
    def rate(self) -> Rate | None:
        """The rate; None: as fast as possible."""
        return self._rate

    def change(self, rate: Rate | None) -> None:
        """Set another rate, also for a wait that has begun. Raises InvalidArgument."""
        if rate is not None and not isinstance(rate, Rate):
            raise InvalidArgument(f"expected a Rate or None, got {rate!r:.100}")
        with self._changed:
            now = self._clock.monotonic()
            if rate is None:
                self._pace = None
            elif self._pace is None:
                self._pace = Pace(rate, now)
            else:
                self._pace.change(rate, now)
            self._rate = rate
            self._changed.notify_all()

    def wake(self) -> None:
        """Have a wait look at `interrupted` again."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, until: float | None, interrupted: Callable[[], bool]) -> bool:
        """Return True once the reader may take more rows; False at the time `until` of the monotonic clock, or if
        interrupted."""
        if self._pace is None:
            return True
        with self._changed:
            while self._pace is not None and not interrupted():
                now = self._clock.monotonic()
                pause = self._pace.wait_s(now)
                if not pause:
                    return True
                if until is not None and until <= now:
                    return False
                self._changed.wait(pause if until is None else min(pause, until - now))
        return not interrupted()

    def take(self, rows: int, size: int) -> int:
        """How many of the next rows, which have `size` bytes together, the reader may have now; at least one."""
        if self._pace is None:
            return rows
        with self._changed:
            return rows if self._pace is None else self._pace.take(rows, size)
