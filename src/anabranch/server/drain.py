"""The end of a broker: how its parts are drained, and how calls without an end of their own learn of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from anabranch.server.front_end import FrontEnd


class Drain:
    """Whether the broker is about to end. Followers of a stream and readers of a group register a callback:
    they send what the caller needs to resume elsewhere, and end their answer. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = False
        self._ending: dict[int, Callable[[], None]] = {}
        self._next = 0

    @property
    def started(self) -> bool:
        """Whether the drain has begun. It is never undone."""
        return self._started

    def on_start(self, end: Callable[[], None]) -> Callable[[], None]:
        """Have `end` called once, when the drain begins, or at once if it has begun. `end` may be called in any thread,
        and must not wait. Returns a function that unregisters `end`."""
        with self._lock:
            if not self._started:
                number, self._next = self._next, self._next + 1
                self._ending[number] = end
                return lambda: self._forget(number)
        end()
        return lambda: None

    def start(self) -> None:
        """Begin the drain, and call all registered callbacks. Repeated calls do nothing."""
        with self._lock:
            if self._started:
                return
            self._started = True
            ending, self._ending = list(self._ending.values()), {}
        for end in ending:
            end()

    def _forget(self, number: int) -> None:
        with self._lock:
            self._ending.pop(number, None)


def drain_together(parts: Sequence[FrontEnd], seconds: float) -> bool:
    """Drain all parts at the same time. Returns False if calls are still under way after `seconds`."""
    results: list[bool] = []
    threads = [
        threading.Thread(target=lambda part=part: results.append(part.drain(seconds)), daemon=True) for part in parts
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds + 1.0
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return len(results) == len(threads) and all(results)
