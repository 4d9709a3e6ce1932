"""Waits for new events: notified of commits within the process, polling for those of other processes."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.runtime.ports import Runtime

_GROWTH: Final = 1.1  # so that an interval is at most about a tenth of the time that was waited


class Tail:
    """Notifies the readers of a process that something may have changed. One per store.

    Within the process, the appender calls `notify`. The catalog reports commits of other processes if it can. Commits
    are also found by polling the catalog's token. One of the waiting readers polls for all of them, less and less often
    while nothing happens: every `limits.TAIL_POLL_US_MIN` at first, every `settings.tail_poll_us_max` in the end, or
    `limits.TAIL_POLL_REPORTED_US_MAX` if the catalog reports commits."""

    def __init__(self, catalog: Catalog, runtime: Runtime) -> None:
        self._catalog = catalog
        self._clock = runtime.clock
        self._interval_max = runtime.settings.tail_poll_us_max / 1e6
        self._interval_min = min(limits.TAIL_POLL_US_MIN / 1e6, self._interval_max)
        self._changed = runtime.tasks.condition()
        self._generation = 0
        self._token: int | None = None
        self._polling = False
        self._closed = False
        self._listening = False

    def generation(self) -> int:
        """Returns a number that stands for the present state of the store. Call it before reading, and pass it to
        `wait` if nothing was found: then no commit in between is missed."""
        self._poll()
        return self._generation

    def notify(self) -> None:
        """Wakes all waiting readers: something was committed, or a reader was closed."""
        with self._changed:
            self._generation += 1
            self._changed.notify_all()

    def wait(self, since: int, timeout_s: float | None = None) -> bool:
        """Waits until something may have changed since `generation` returned `since`. Returns False after `timeout_s`
        seconds, or once closed. True may be a false alarm."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        mine = False
        try:
            with self._changed:
                while self._polling:
                    if (woken := self._wait_result(since, deadline)) is not None:
                        return woken
                    self._changed.wait(self._left(deadline))
                if (woken := self._wait_result(since, deadline)) is not None:
                    return woken
                self._polling = mine = True  # one statement, since Ctrl-C may strike before the next line
            if not self._listening:
                self._listen()
            return self._wait_polling(since, deadline)
        finally:
            if mine:
                with self._changed:
                    self._polling = False
                    self._changed.notify_all()  # another reader polls from now on

    def _listen(self) -> None:
        """Ask the catalog to report commits; while it does, polling only finds those whose report was lost."""
        self._listening = True
        if self._catalog.on_change(self._poll):
            self._interval_max = max(self._interval_max, limits.TAIL_POLL_REPORTED_US_MAX / 1e6)

    def _wait_polling(self, since: int, deadline: float | None) -> bool:
        interval = self._interval_min
        while True:
            with self._changed:
                if (woken := self._wait_result(since, deadline)) is not None:
                    return woken
                left = self._left(deadline)
                self._changed.wait(interval if left is None else min(interval, left))
                if (woken := self._wait_result(since, deadline)) is not None:
                    return woken
            self._poll()
            interval = min(_GROWTH * interval, self._interval_max)

    def _wait_result(self, since: int, deadline: float | None) -> bool | None:
        """What `wait` returns now, or None if it must continue waiting."""
        if self._closed:
            return False
        if self._generation != since:
            return True
        left = self._left(deadline)
        return False if left is not None and left <= 0 else None

    def _left(self, deadline: float | None) -> float | None:
        return None if deadline is None else deadline - self._clock.monotonic()

    def close(self) -> None:
        """Wakes all waiting readers, for good. May be called again."""
        with self._changed:
            self._closed = True
            self._generation += 1
            self._changed.notify_all()

    def _poll(self) -> None:
        # Not under the condition's lock, which an appender takes at every commit.
        token = self._catalog.token()
        with self._changed:
            if token != self._token:
                self._token = token
                self._generation += 1
                self._changed.notify_all()
