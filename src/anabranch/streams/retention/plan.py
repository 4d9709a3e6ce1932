"""What a retention policy removes: a cut, decided from a view, the time, and the catalog's times and sizes.

A bound by age depends on append times only. Bytes are counted from the tail: the cut lies at one append time, so that
segments with few events keep the same time span as those with many. Where a large amount was appended at one
time, or events were stitched after younger ones, the events between two such cuts are shared evenly among the segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.core.advance import Weigh, advance
from anabranch.core.cuts import head_cut, intersection, ranges, tail_cut, union
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.streams.retention.policy import Retention

_CLOSE = 16  # the bisection over times ends when the bytes between its two cuts are 1/16 of those kept


@dataclass(frozen=True, slots=True)
class RetentionIndex:
    """Queries to the catalog. `at` is the exact cut before the first event appended at or after a time. `approximate` is
    a nearby cut for counting, found without reading events, never after `at`. `weigh` returns logical bytes. Neither cut
    moves back when the time rises."""

    at: Callable[[Micros], StreamCut]
    approximate: Callable[[Micros], StreamCut]
    weigh: Weigh


@dataclass(frozen=True, slots=True)
class RetentionBounds:
    """The bounds that follow from the ages and sizes of a policy. Events before `remove_before` are removed, even if
    groups have not read them; none after `keep_after` is removed, None where the policy has no minimum."""

    remove_before: StreamCut
    keep_after: StreamCut | None


def plan_bounds(view: StreamView, policy: Retention, *, now: Micros, index: RetentionIndex) -> RetentionBounds:
    """The bounds of the policy, without its groups. Never after the tail."""
    remove_before, keep_after = head_cut(view), None
    if policy.age_us is not None:
        remove_before = union(view, remove_before, index.at(Micros(now - policy.age_us)))
    if policy.size is not None:
        remove_before = union(view, remove_before, newest(view, policy.size, index))
    if policy.age_min_us:
        keep_after = index.at(Micros(now - policy.age_min_us))
    if policy.size_min:
        least = newest(view, policy.size_min, index)
        keep_after = least if keep_after is None else intersection(view, keep_after, least)
    return RetentionBounds(remove_before, keep_after)


def plan_cut(view: StreamView, bounds: RetentionBounds, consumed: StreamCut | None) -> StreamCut:
    """The cut before which everything may be removed; the head where nothing may. `consumed` is how far all subscribers
    have read; None without subscribers, and then reading removes nothing."""
    cut = bounds.remove_before if consumed is None else union(view, bounds.remove_before, consumed)
    return cut if bounds.keep_after is None else intersection(view, cut, bounds.keep_after)


def newest(view: StreamView, size: int, index: RetentionIndex) -> StreamCut:
    """The last cut after which at least `size` bytes lie; the head where the stream holds no more than that."""
    head, tail = head_cut(view), tail_cut(view)

    def bytes_after(cut: StreamCut) -> int:
        return sum(index.weigh(*part) for part in ranges(view, cut, tail))

    early, late = head, tail
    bytes_early, bytes_late = bytes_after(head), 0
    if bytes_early <= size:
        return head
    low, high = 0, max((log.appended_at for log in view.logs.values()), default=Micros(0)) + 1
    while high - low > 1 and bytes_early - bytes_late > size // _CLOSE:
        middle = (low + high) // 2
        cut = index.approximate(Micros(middle))
        found = bytes_after(cut)
        if found >= size:
            low, early, bytes_early = middle, cut, found
        else:
            high, late, bytes_late = middle, cut, found
    return advance(view, early, bytes_early - size, index.weigh, at_most=True, stop=late)
