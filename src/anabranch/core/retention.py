"""What a retention policy lets go: a cut, decided from a view, the time, and what the catalog says of times and sizes.

Ages decide alone where a policy says an age. Bytes are counted from the tail: the cut is one at a time, so that segments
with few events keep as much of the past as those with many. Where very much was appended at one time, or events were
stitched behind younger ones, what lies between two such cuts is shared evenly among the segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.core.advance import Weigh, advance
from anabranch.core.cuts import furthest, head_cut, nearest, ranges, tail_cut
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.retention import Retention
from anabranch.model.stream import StreamView

_CLOSE = 16  # times are halved until what lies between two cuts is this part of what is kept


@dataclass(frozen=True, slots=True)
class Index:
    """What is asked of the catalog. `at` is the exact cut before the first event appended at or after a time; `about`
    one that is as good for counting, found without a look at events, never behind `at`; `weigh` tells logical bytes.
    Neither cut goes back when the time rises."""

    at: Callable[[Micros], StreamCut]
    about: Callable[[Micros], StreamCut]
    weigh: Weigh


def plan_retention(view: StreamView, policy: Retention, *, now: Micros, index: Index) -> StreamCut:
    """The cut before which everything may go; the head where nothing may. Never behind the tail."""
    cut = head_cut(view)
    if policy.age_us is not None:
        cut = furthest(view, cut, index.at(Micros(now - policy.age_us)))
    if policy.size is not None:
        cut = furthest(view, cut, newest(view, policy.size, index))
    if policy.age_min_us:
        cut = nearest(view, cut, index.at(Micros(now - policy.age_min_us)))
    if policy.size_min:
        cut = nearest(view, cut, newest(view, policy.size_min, index))
    return cut


def newest(view: StreamView, size: int, index: Index) -> StreamCut:
    """The last cut behind which at least `size` bytes lie; the head where the stream holds no more than that."""
    head, tail = head_cut(view), tail_cut(view)

    def behind(cut: StreamCut) -> int:
        return sum(index.weigh(*part) for part in ranges(view, cut, tail))

    early, late = head, tail
    kept, left = behind(head), 0
    if kept <= size:
        return head
    low, high = 0, max((log.appended_at for log in view.logs.values()), default=Micros(0)) + 1
    while high - low > 1 and kept - left > size // _CLOSE:
        middle = (low + high) // 2
        cut = index.about(Micros(middle))
        found = behind(cut)
        if found >= size:
            low, early, kept = middle, cut, found
        else:
            high, late, left = middle, cut, found
    return advance(view, early, kept - size, index.weigh, at_most=True, stop=late)
