"""Which events come too late: the pure account of what Spark's watermark drops, for the side stream.

Spark 4.3 drops in batch N what lies behind the watermark that it wrote down with the offsets of batch N-1 (behind 0
in the first batch), and closes windows by that of batch N. So an event is late for a window exactly when the window's
end is at or before that earlier watermark. Spark counts what it dropped only after adding events up within each
partition, and says neither which nor how many: hence this account.

An event can be late for some of its sliding windows and in time for others. The side stream holds it once, with the
watermark, and a reader decides for each window: late for it when the event's time lies in it and its end is at or
before `_watermark`. Then for each closed window, Spark's count and the late events add up to all events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anabranch.spark.statement import Window

__all__ = ["WATERMARK_COLUMN", "first_ends", "is_late"]

WATERMARK_COLUMN = "_watermark"

TimesUs = npt.NDArray[np.int64]


def first_ends(times_us: TimesUs, window: Window) -> TimesUs:
    """For each event time, the earliest end of the windows that the event falls into. All in µs since the epoch.

    A session's window, before other events extend it, ends one gap after the event.
    """
    if window.is_session:
        return times_us + window.size_us
    into_slide = (times_us - window.size_us - window.start_us) % window.slide_us
    return times_us - into_slide + window.slide_us


def is_late(times_us: TimesUs, windows: Sequence[Window], watermark_us: int) -> npt.NDArray[np.bool_]:
    """True for each event that is late for at least one window.

    Without windows (a join of streams), what counts is the event's own time.
    """
    late = np.zeros(len(times_us), dtype=np.bool_)
    ends = [first_ends(times_us, window) for window in windows] or [times_us]
    for end in ends:
        late |= end <= watermark_us
    return late
