"""Scaling by load: which segments to split and which to merge, decided from what each got lately.

Splits are fast and merges slow, so that a burst finds room soon and a lull does not undo it: a segment is hot when it gets
clearly more than its target over a short window, or more than it over a long one; two neighbours are cold when together they
get at most half of a target over both. A segment rests after it was made, shortly before it may be split and long
before it may be merged. What a split leaves is never cold at once: two halves of a hot segment get more than a target
together. So a constant load settles, wherever it lies between the two thresholds.

Windows and thresholds are after Pravega's auto-scaling (two to twenty minutes), which reports rates from its servers; here
they come from running totals in the catalog, sampled from time to time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.core.scale import ScalePlan, plan_replacement
from anabranch.model.ids import Micros, SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.policy import ByEventRate, ByRate
from anabranch.model.stream import Segment, StreamView

HOT: Final = 1.25  # of the target, over the short window
COLD: Final = 0.5  # of the target, for two neighbours together
_LONG_SAMPLES: Final = 10  # that are kept of the long window, beside those of the short one


@dataclass(frozen=True, slots=True)
class Pace:
    """The windows that rates are measured over, and how long a segment rests before it is split or merged, in µs."""

    short_us: int = limits.SCALING_SHORT_US
    long_us: int = limits.SCALING_LONG_US
    split_rest_us: int = limits.SCALING_SHORT_US
    merge_rest_us: int = limits.SCALING_LONG_US


class Sample(NamedTuple):
    """The events and logical bytes that a segment's open log held at a time. They never sink."""

    at: Micros
    events: int
    bytes: int


class Load(NamedTuple):
    """What a segment gets a second over both windows, None while it is younger than the window; and its age in µs."""

    short: float | None
    long: float | None
    age_us: int


def load_of(samples: Sequence[Sample], policy: ByRate, pace: Pace) -> Load:
    """The load that samples tell, oldest first, at least one."""
    return Load(
        _rate(samples, policy, pace.short_us), _rate(samples, policy, pace.long_us), samples[-1].at - samples[0].at
    )


def thinned(samples: Sequence[Sample], pace: Pace) -> tuple[Sample, ...]:
    """The samples that later decisions need: the first, which tells the age; those of the short window and the last one
    before it; and about `_LONG_SAMPLES` of the long one with one before."""
    now = samples[-1].at
    kept: list[Sample] = []
    for sample, follower in zip(samples, [*samples[1:], None], strict=True):
        first = not kept
        too_old = follower is not None and follower.at <= now - pace.long_us
        recent = follower is None or follower.at > now - pace.short_us
        spaced = bool(kept) and sample.at - kept[-1].at >= pace.long_us // _LONG_SAMPLES
        if first or recent or (spaced and not too_old):
            kept.append(sample)
    return tuple(kept)


def plan_scaling(view: StreamView, policy: ByRate, loads: Mapping[SegmentId, Load], pace: Pace) -> ScalePlan | None:
    """One step, or None where all is well. Hot segments are split and pairs of cold neighbours merged, all in one epoch;
    segments without a load are left alone. A segment is not split below `limits.SCALING_WIDTH_MIN` points: one key that
    gets more than a target can't be spread, and its segment is left alone then."""
    if view.info.sealed:
        return None
    current = view.current
    if len(current) < policy.minimum:
        return _widen(view, policy.minimum)
    room = limits.SEGMENTS_MAX - len(current)
    ended: list[SegmentId] = []
    begun: list[KeyRange] = []
    for segment in current:
        parts = min(_parts(segment, policy, loads.get(segment.id), pace), room + 1)
        if parts > 1:
            ended.append(segment.id)
            begun += segment.range.split(parts)
            room -= parts - 1
    spare = len(current) - policy.minimum
    for left, right in _cold(current, policy, loads, pace, set(ended))[:spare]:
        ended += [left.id, right.id]
        begun.append(KeyRange(left.range.low, right.range.high))
    return plan_replacement(view, ended, sorted(begun)) if ended else None


def _rate(samples: Sequence[Sample], policy: ByRate, window_us: int) -> float | None:
    newest = samples[-1]
    before = [sample for sample in samples if sample.at <= newest.at - window_us]
    if not before:
        return None
    oldest = before[-1]
    total = newest.events - oldest.events if policy.unit == ByEventRate.unit else newest.bytes - oldest.bytes
    return total * 1e6 / (newest.at - oldest.at)


def _parts(segment: Segment, policy: ByRate, load: Load | None, pace: Pace) -> int:
    """Into how many a segment is split; 1 for not at all."""
    if load is None or load.age_us < pace.split_rest_us:
        return 1
    short, long = load.short or 0.0, load.long or 0.0
    if short <= HOT * policy.target and long <= policy.target:
        return 1
    wanted = math.ceil(max(short, long) / policy.target)
    width = segment.range.high - segment.range.low
    return max(1, min(max(wanted, 2), policy.factor, width // limits.SCALING_WIDTH_MIN))


def _cold(
    current: Sequence[Segment], policy: ByRate, loads: Mapping[SegmentId, Load], pace: Pace, ended: set[SegmentId]
) -> list[tuple[Segment, Segment]]:
    """Pairs of neighbours, each segment in one at most, that can do with one segment."""
    pairs: list[tuple[Segment, Segment]] = []
    place = 0
    while place + 1 < len(current):
        left, right = current[place], current[place + 1]
        both = [loads.get(left.id), loads.get(right.id)]
        if not {left.id, right.id} & ended and all(_rested(load, pace) for load in both):
            short = sum(load.short or 0.0 for load in both if load is not None)
            long = sum(load.long or 0.0 for load in both if load is not None)
            if max(short, long) <= COLD * policy.target:
                pairs.append((left, right))
                place += 1
        place += 1
    return pairs


def _rested(load: Load | None, pace: Pace) -> bool:
    return load is not None and load.age_us >= pace.merge_rest_us and load.short is not None and load.long is not None


def _widen(view: StreamView, minimum: int) -> ScalePlan:
    """The widest segments split in two until there are so many."""
    parts: list[tuple[KeyRange, SegmentId]] = [(segment.range, segment.id) for segment in view.current]
    while len(parts) < minimum:
        widest = max(parts, key=lambda part: (part[0].high - part[0].low, -part[0].low))
        parts.remove(widest)
        parts += [(half, widest[1]) for half in widest[0].split(2)]
    whole = {segment.range for segment in view.current}
    changed = [(part, ident) for part, ident in parts if part not in whole]
    return plan_replacement(view, sorted({ident for _, ident in changed}), sorted(part for part, _ in changed))
