"""Waiting a stated time for a server that is away or busy."""

from __future__ import annotations

from anabranch.runtime.ports import Runtime

_PAUSE_S_MIN = 0.01
_PAUSE_S_MAX = 1.0


class Patience:
    """Pauses that grow, with jitter, until `settings.catalog_lock_s` have passed since it was made."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._deadline = runtime.clock.monotonic() + runtime.settings.catalog_lock_s
        self._pause_s = _PAUSE_S_MIN

    @property
    def left_s(self) -> float:
        """Seconds until it ends; 0 at its end."""
        return max(0.0, self._deadline - self._runtime.clock.monotonic())

    def pause(self) -> bool:
        """Sleep a little longer than the last time; False, at once, where the time is over."""
        left = self.left_s
        if left == 0:
            return False
        # Between half the pause and all of it, so that clients that were cut off together do not come back together.
        part = 0.5 + self._runtime.ids.bits(16) / (1 << 17)
        self._runtime.tasks.sleep(min(left, self._pause_s * part))
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)
        return True
