"""How far a statement is behind its sources: the age of the oldest unread event, and the progress by segment. Needs no Spark."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import nlargest
from typing import Any, Final

from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.names import StreamName
from anabranch.model.segment_range import RangesBetween

__all__ = ["BacklogAge", "segment_progress"]


_SAMPLES_MAX: Final = 2048

_SEGMENTS_MAX: Final = 100  # reported of one source: the progress is written to the catalog about each second


class BacklogAge:
    """Remembers when the number of events of the sources rose. Events that were there at the first call count as
    appended then."""

    def __init__(self) -> None:
        self._rises: deque[tuple[float, int]] = deque()  # when there were first this many events

    def measure(self, read: int, lag: int, now_s: float) -> float:
        """The age in s of the oldest unread event; `read` and `lag` count the events that are read, and still unread."""
        total = read + lag
        if not self._rises or total > self._rises[-1][1]:
            self._rises.append((now_s, total))
        while self._rises and self._rises[0][1] <= read:
            self._rises.popleft()
        if (
            len(self._rises) > _SAMPLES_MAX
        ):  # keep the oldest one, which decides the age, and every other one of the rest
            self._rises = deque(list(self._rises)[::2])
        return now_s - self._rises[0][0] if lag and self._rises else 0.0


def segment_progress(
    stream: StreamName, reached: StreamCut, unread: RangesBetween, event_times: Mapping[SegmentId, Micros]
) -> list[dict[str, Any]]:
    """A mapping for each segment that the cut is in or that has unread events: `stream`, `segment` (its id as text), `lag` (unread events),
    `event_time_us` (the event time up to which it is read, None if not known) and `skew_s` (by how many seconds that is
    behind the foremost segment of the stream, None if not known). In the order of segments; of many segments, those that
    are the furthest behind."""
    lags = {part.segment: part.events for part in unread.ranges}
    foremost = max(event_times.values(), default=Micros(0))
    behind_us = {segment: foremost - time for segment, time in event_times.items()}
    segments = reached.as_dict().keys() | lags.keys()
    furthest = nlargest(_SEGMENTS_MAX, segments, key=lambda each: (behind_us.get(each, 0), lags.get(each, 0)))
    return [
        {
            "stream": str(stream),
            "segment": str(segment),
            "lag": lags.get(segment, 0),
            "event_time_us": event_times.get(segment),
            "skew_s": behind_us[segment] / 1e6 if segment in behind_us else None,
        }
        for segment in sorted(furthest)
    ]
