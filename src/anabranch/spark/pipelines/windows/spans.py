"""Windows of time, and which of them hold an event. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.spark.pipelines.windows.grouping import Numbers

__all__ = ["StatementWindow", "first_ends", "windows_of"]


@dataclass(frozen=True, slots=True)
class StatementWindow:
    """One `window(column, size[, slide[, start]])`, in µs; tumbling if `slide_us == size_us`.

    A `session_window(column, gap)` has `slide_us == 0` and its gap as `size_us`.
    """

    column: str
    size_us: int
    slide_us: int
    start_us: int = 0

    @property
    def is_session(self) -> bool:
        """True for a session window, whose bounds depend on the events in it."""
        return self.slide_us == 0


def first_ends(times_us: Numbers, window: StatementWindow) -> Numbers:
    """For each event time, the earliest end of the windows that contain the event. All in µs since the epoch.

    A session window, before other events extend it, ends one gap after the event.
    """
    if window.is_session:
        return times_us + window.size_us
    into_slide = (times_us - window.size_us - window.start_us) % window.slide_us
    return times_us - into_slide + window.slide_us


def windows_of(times_us: Numbers, window: StatementWindow) -> tuple[Numbers, Numbers]:
    """Each pair of an event and a window, other than of a session, that holds it: the index of the event's time, and the
    window's end. The pairs of an event follow each other."""
    later = np.arange(-(-window.size_us // window.slide_us)) * window.slide_us
    ends: Numbers = first_ends(times_us, window)[:, None] + later
    holds = ends - window.size_us <= times_us[:, None]
    return np.nonzero(holds)[0].astype(np.int64), ends[holds]
