"""Divides a commit that is larger than a batch may be, so that no segment gets ahead of the others in event time.

Lateness is judged by the newest event time of all segments. A part with much of one segment and little of another would
advance that time beyond events of the other that are still to come, and make them late.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import numpy.typing as npt

from anabranch.model.ids import SegmentId

__all__ = ["LOOK_AHEAD_EVENTS", "Times", "evenly_spread", "look_ahead", "take_earliest"]

Times = npt.NDArray[np.int64] | npt.NDArray[np.float64]

# How many events of a segment are examined beyond its proportional share, since they may be earlier than those of other
# segments.
LOOK_AHEAD_EVENTS = 1_024


def look_ahead(remaining: Mapping[SegmentId, int], events_max: int) -> dict[SegmentId, int]:
    """How many of each segment's remaining events `take_earliest` has to examine: at most about twice `events_max` in total,
    plus `LOOK_AHEAD_EVENTS` for each segment."""
    total = max(sum(remaining.values()), 1)
    return {s: min(count, 2 * -(-events_max * count // total) + LOOK_AHEAD_EVENTS) for s, count in remaining.items()}


def evenly_spread(start: int, stop: int, total: int) -> npt.NDArray[np.float64]:
    """Substitute times for a stream without event times: those of events `start` to `stop` of a segment that has
    `total` in the commit, as fractions of the commit. So each segment is read in proportion to its share."""
    return (np.arange(start, stop, dtype=np.float64) + 0.5) / total


def take_earliest(
    times: Mapping[SegmentId, Times], more: Collection[SegmentId], events_max: int
) -> dict[SegmentId, int]:
    """How many events to take of each segment: those that come first by time, at most `events_max` in total, at least
    one if there are any.

    `times` are the next events of each segment in their order; segments in `more` have further events. Each event
    counts with the newest time up to it, since a segment is read in its order. So no event taken is newer than one that
    is left, except for disorder within a segment. (Among events of the same time, segments come in their order.)
    """
    running_max = {segment: np.maximum.accumulate(found) for segment, found in times.items() if len(found)}
    if not running_max:
        return {}
    segments = sorted(running_max)
    newest = np.concatenate([running_max[segment] for segment in segments])
    owner = np.repeat(np.arange(len(segments)), [len(running_max[segment]) for segment in segments])
    unknown = [running_max[segment][-1] for segment in segments if segment in more]
    order = np.argsort(newest, kind="stable")[:events_max]
    if unknown:  # events after it may be earlier than newer ones of other segments
        order = order[newest[order] <= min(unknown)]
    counts = np.bincount(owner[order], minlength=len(segments))
    return {segment: int(count) for segment, count in zip(segments, counts, strict=True)}
