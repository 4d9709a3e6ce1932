"""How far a statement is in each segment of a source: the events still to be read, and the segments' event times beside
each other."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from typing import Any, Final

from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.names import StreamName
from anabranch.model.segment_range import RangesBetween

__all__ = ["segment_progress"]

_SEGMENTS_MAX: Final = 100  # reported of one source: the progress is written to the catalog about each second


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
