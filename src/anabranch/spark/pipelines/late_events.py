"""Computes which events Spark's watermark drops as late, for the stream of late events. Pure.

In batch N, Spark 4.3 drops events by the watermark that it stored with the offsets of batch N-1 (0 in the first batch),
and closes windows by that of batch N. So an event is late for a window exactly if the window's end is at or before the
earlier watermark. Spark counts dropped rows only after partial aggregation within each partition, and reports neither
which events they are nor how many. So they are computed here.

An event can be late for some of its sliding windows and in time for others. The stream of late events holds it once,
with the watermark. A reader decides for each window that contains the event's time: the event is late for it if the
window's end is at or before `_watermark`. Then for each closed window, Spark's count and the late events add up to all
events.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from anabranch.spark.pipelines.windows.spans import StatementWindow, first_ends

__all__ = ["WATERMARK_COLUMN", "is_late"]

WATERMARK_COLUMN = "_watermark"

TimesUs = npt.NDArray[np.int64]


def is_late(times_us: TimesUs, windows: Sequence[StatementWindow], watermark_us: int) -> npt.NDArray[np.bool_]:
    """True for each event that is late for at least one window.

    Without windows (a join of streams), the event's own time decides.
    """
    late = np.zeros(len(times_us), dtype=np.bool_)
    ends = [first_ends(times_us, window) for window in windows] or [times_us]
    for end in ends:
        late |= end <= watermark_us
    return late
