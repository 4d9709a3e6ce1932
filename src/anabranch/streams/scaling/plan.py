"""Scaling by load: which segments to split and which to merge, decided from their recent load.

Splits are fast and merges slow, so that a burst gets more segments soon and a short lull does not undo it. A segment is
hot when its rate is clearly above its target over a short window, or above it over a long one. Two neighbours are cold
when their summed rate is at most half of a target over both windows. A new segment has a short cooldown before it may be
split and a long one before it may be merged. The results of a split are never cold at once: two halves of a hot segment
get more than a target together. So a constant load reaches a stable number of segments, wherever it lies between the
two thresholds.

Windows and thresholds follow Pravega's auto-scaling (two to twenty minutes), which reports rates from its servers; here
they come from running totals in the catalog, sampled from time to time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch import limits
from anabranch.catalog.state.load import LoadSample
from anabranch.core.scale import ScalePlan, plan_replacement
from anabranch.model.ids import SegmentId
from anabranch.model.keyspace import KeyRange
from anabranch.model.policy import ByEventRate, ByRate
from anabranch.model.stream import Segment, StreamView

HOT: Final = 1.25  # of the target, over the short window
COLD: Final = 0.5  # of the target, for two neighbours together
_LONG_SAMPLES: Final = 10  # samples kept of the long window, beside those of the short one


@dataclass(frozen=True, slots=True)
class ScalingPace:
    """The windows over which rates are measured, and the cooldowns before a new segment is split or merged, in µs."""

    short_us: int = limits.SCALING_SHORT_US
    long_us: int = limits.SCALING_LONG_US
    split_cooldown_us: int = limits.SCALING_SHORT_US
    merge_cooldown_us: int = limits.SCALING_LONG_US


class SegmentLoad(NamedTuple):
    """A segment's rate per second over both windows, None while it is younger than the window; and its age in µs."""

    short: float | None
    long: float | None
    age_us: int


def load_of(samples: Sequence[LoadSample], policy: ByRate, pace: ScalingPace) -> SegmentLoad:
    """The load that the samples show. They are sorted oldest first, at least one."""
    return SegmentLoad(
        _rate(samples, policy, pace.short_us), _rate(samples, policy, pace.long_us), samples[-1].at - samples[0].at
    )


def thin_samples(samples: Sequence[LoadSample], pace: ScalingPace) -> tuple[LoadSample, ...]:
    """The samples that later decisions need: the first, which gives the age; those of the short window and the last one
    before it; and about `_LONG_SAMPLES` of the long window and one before it."""
    now = samples[-1].at
    kept: list[LoadSample] = []
    for sample, follower in zip(samples, [*samples[1:], None], strict=True):
        first = not kept
        too_old = follower is not None and follower.at <= now - pace.long_us
        recent = follower is None or follower.at > now - pace.short_us
        spaced = bool(kept) and sample.at - kept[-1].at >= pace.long_us // _LONG_SAMPLES
        if first or recent or (spaced and not too_old):
            kept.append(sample)
    return tuple(kept)


def plan_scaling(
    view: StreamView, policy: ByRate, loads: Mapping[SegmentId, SegmentLoad], pace: ScalingPace
) -> ScalePlan | None:
    """One step of scaling, or None where nothing needs to change. Hot segments are split and pairs of cold neighbours
    merged, all in one epoch; segments without a load are left unchanged. A segment is not split below
    `limits.SCALING_WIDTH_MIN` points: one key whose rate exceeds the target can't be spread, so its segment is left
    unchanged."""
    if view.info.sealed:
        return None
    current = view.current
    if len(current) < policy.minimum:
        return _split_to_minimum(view, policy.minimum)
    free = limits.SEGMENTS_MAX - len(current)
    sealed: list[SegmentId] = []
    created: list[KeyRange] = []
    for segment in current:
        parts = min(_parts(segment, policy, loads.get(segment.id), pace), free + 1)
        if parts > 1:
            sealed.append(segment.id)
            created += segment.range.split(parts)
            free -= parts - 1
    spare = len(current) - policy.minimum
    for left, right in _cold_pairs(current, policy, loads, pace, set(sealed))[:spare]:
        sealed += [left.id, right.id]
        created.append(KeyRange(left.range.low, right.range.high))
    return plan_replacement(view, sealed, sorted(created)) if sealed else None


def _rate(samples: Sequence[LoadSample], policy: ByRate, window_us: int) -> float | None:
    newest = samples[-1]
    before = [sample for sample in samples if sample.at <= newest.at - window_us]
    if not before:
        return None
    oldest = before[-1]
    total = newest.events - oldest.events if policy.unit == ByEventRate.unit else newest.bytes - oldest.bytes
    return total * 1e6 / (newest.at - oldest.at)


def _parts(segment: Segment, policy: ByRate, load: SegmentLoad | None, pace: ScalingPace) -> int:
    """The number of segments to split into; 1 for no split."""
    if load is None or load.age_us < pace.split_cooldown_us:
        return 1
    short, long = load.short or 0.0, load.long or 0.0
    if short <= HOT * policy.target and long <= policy.target:
        return 1
    wanted = math.ceil(max(short, long) / policy.target)
    width = segment.range.high - segment.range.low
    return max(1, min(max(wanted, 2), policy.factor, width // limits.SCALING_WIDTH_MIN))


def _cold_pairs(
    current: Sequence[Segment],
    policy: ByRate,
    loads: Mapping[SegmentId, SegmentLoad],
    pace: ScalingPace,
    sealed: set[SegmentId],
) -> list[tuple[Segment, Segment]]:
    """Pairs of neighbours, each segment in one at most, whose load fits into one segment."""
    pairs: list[tuple[Segment, Segment]] = []
    index = 0
    while index + 1 < len(current):
        left, right = current[index], current[index + 1]
        both = [loads.get(left.id), loads.get(right.id)]
        if not {left.id, right.id} & sealed and all(_cooled_down(load, pace) for load in both):
            short = sum(load.short or 0.0 for load in both if load is not None)
            long = sum(load.long or 0.0 for load in both if load is not None)
            if max(short, long) <= COLD * policy.target:
                pairs.append((left, right))
                index += 1
        index += 1
    return pairs


def _cooled_down(load: SegmentLoad | None, pace: ScalingPace) -> bool:
    return (
        load is not None and load.age_us >= pace.merge_cooldown_us and load.short is not None and load.long is not None
    )


def _split_to_minimum(view: StreamView, minimum: int) -> ScalePlan:
    """Split the widest segments in two until there are `minimum`."""
    parts: list[tuple[KeyRange, SegmentId]] = [(segment.range, segment.id) for segment in view.current]
    while len(parts) < minimum:
        widest = max(parts, key=lambda part: (part[0].high - part[0].low, -part[0].low))
        parts.remove(widest)
        parts += [(half, widest[1]) for half in widest[0].split(2)]
    unchanged = {segment.range for segment in view.current}
    changed = [(part, ident) for part, ident in parts if part not in unchanged]
    return plan_replacement(view, sorted({ident for _, ident in changed}), sorted(part for part, _ in changed))
