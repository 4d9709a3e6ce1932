"""Token buckets: when the next may be taken, if a rate is to be kept. Clocks are the caller's."""

from __future__ import annotations

from typing import Final

from anabranch.model.rate import Rate

BURST_S: Final = 2.0
"""Where callers are limited, what was not used for this long may be used at once."""

STEP_S: Final = 0.1
"""A consumer with a rate gets what it may have in this time at once."""


class TokenBucket:
    """What was not used for `burst_s` may be used at once. The level may go below zero, so that one large amount passes
    at once and the next ones wait longer."""

    __slots__ = ("_at", "_burst_s", "_level", "rate")

    def __init__(self, rate: float, now: float, *, burst_s: float) -> None:
        """`rate` is per second, above 0."""
        self.rate, self._burst_s = rate, burst_s
        self._level, self._at = rate * burst_s, now

    def wait_s(self, now: float) -> float:
        """How long until something may be taken; 0: at once."""
        self._level = min(self.rate * self._burst_s, self._level + (now - self._at) * self.rate)
        self._at = now
        return 0.0 if self._level > 0 else max(0.001, -self._level / self.rate)

    def take(self, amount: float) -> None:
        """Take an amount, however large."""
        self._level -= amount

    def change(self, rate: float, now: float) -> None:
        """Another rate from now on. What is owed is paid back at it."""
        self.wait_s(now)
        self.rate, self._level = rate, min(self._level, rate * self._burst_s)


class Pace:
    """Keeps one consumer to a rate. After a pause it gets at most what `STEP_S` allows at once."""

    def __init__(self, rate: Rate, now: float) -> None:
        self._events = _bucket(None, rate.events_per_s, now)
        self._bytes = _bucket(None, rate.bytes_per_s, now)

    def change(self, rate: Rate, now: float) -> None:
        """Another rate from now on."""
        self._events = _bucket(self._events, rate.events_per_s, now)
        self._bytes = _bucket(self._bytes, rate.bytes_per_s, now)

    def wait_s(self, now: float) -> float:
        """How long until the consumer may have more; 0: at once."""
        return max((each.wait_s(now) for each in (self._events, self._bytes) if each is not None), default=0.0)

    def take(self, rows: int, size: int) -> int:
        """How many of the next rows, which have `size` bytes together, the consumer may have now: at least one. They are
        counted."""
        taken = rows
        if self._events is not None:
            taken = min(taken, int(self._events.rate * STEP_S))
        if self._bytes is not None and size:
            taken = min(taken, int(rows * self._bytes.rate * STEP_S / size))
        taken = max(1, taken)
        if self._events is not None:
            self._events.take(taken)
        if self._bytes is not None:
            self._bytes.take(size * taken / rows)
        return taken


def _bucket(present: TokenBucket | None, rate: float | None, now: float) -> TokenBucket | None:
    if rate is None:
        return None
    if present is None:
        return TokenBucket(rate, now, burst_s=STEP_S)
    present.change(rate, now)
    return present
