"""When the results of a window are emitted, and what they are made of: the clause EMIT. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["MODES", "EmitPolicy", "Mode"]

Mode = Literal["accumulating", "discarding", "retracting"]
MODES: Final[tuple[Mode, ...]] = ("accumulating", "discarding", "retracting")


@dataclass(frozen=True, slots=True)
class EmitPolicy:
    """While a window is open, it has an early result once `early_events` new events are there, or once it has new events and
    `early_us` of processing time have passed since the last result, or since its first event (None: not for this reason).
    Events that come up to `late_us` after its end are in further results. `mode`: each result is made of all events so
    far, or of those since the last result, or of all while the last result is retracted. Of these events, the `last_events`
    last, and those of the last `last_us` count (None: all)."""

    early_events: int | None = None
    early_us: int | None = None
    late_us: int = 0
    mode: Mode = "accumulating"
    last_events: int | None = None
    last_us: int | None = None
