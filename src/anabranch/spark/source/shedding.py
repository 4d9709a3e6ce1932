"""Measures the load of a query, by which its source sheds events of the next batch."""

from __future__ import annotations

from anabranch.core import cuts
from anabranch.core.shed_rule import ShedRule
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamView
from anabranch.spark.source.batch_end import StoreTimes

__all__ = ["batch_load"]

_SPAN_US_MIN = 1_000_000


def batch_load(
    rule: ShedRule, view: StreamView, start: StreamCut, end: StreamCut, times: StoreTimes, *, now: int
) -> float:
    """The load that the rule limits, of the batch from `start` to `end`, which is not empty. For `lag`: the seconds
    since its first event was appended. Else: the events per second that were appended from its first to its last event,
    counted over at least a second."""
    ranges = list(cuts.ranges(view, start, end))
    first = min(times.of(segment, low) for segment, low, _ in ranges)
    if rule.by == "lag":
        return max(0, now - first) / 1e6
    # A batch may be a part of what was appended at once.
    second = times.cut_at(Micros(first + _SPAN_US_MIN))
    ranges = list(cuts.ranges(view, start, cuts.union(view, end, second)))
    last = max(times.of(segment, high - 1) for segment, _, high in ranges)
    return sum(high - low for _, low, high in ranges) / (max(last - first, _SPAN_US_MIN) / 1e6)
