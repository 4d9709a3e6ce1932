"""How far reader groups have consumed a stream: what they release, and what a truncation removes unread. Pure
functions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from anabranch.core.cuts import below_head, clamp_to_head, intersection, is_before, union
from anabranch.core.group import GroupState, Offsets, cut_of
from anabranch.model.cut import StreamCut
from anabranch.model.stream import StreamView
from anabranch.streams.retention.policy import Release


def released(state: GroupState, view: StreamView, release: Release) -> StreamCut | None:
    """The cut of the stream before which the group needs no events; None for a group that does not read it.

    By `position`: its accepted positions; while a checkpoint is pending, no further than its offsets. By `checkpoint`:
    no further than its last complete checkpoint (its start, if it has none), and no further than its positions,
    which a reset may have moved back. Truncated events count as released.
    """
    if view.info.id not in state.streams:
        return None
    offsets = state.positions if state.checkpoint is None else {**state.positions, **state.checkpoint.offsets}
    cut = _at(view, offsets)
    if release == "checkpoint":
        complete = [each for each in state.checkpoints if not each.silent and view.info.id in each.streams]
        cut = intersection(view, cut, _at(view, complete[-1].offsets if complete else state.starts))
    return cut


def _at(view: StreamView, offsets: Offsets) -> StreamCut:
    cut = cut_of(offsets, view.info.id)
    return clamp_to_head(view, cut) if below_head(view, cut.as_dict()) else cut


def consumed(view: StreamView, subscribers: Iterable[StreamCut]) -> StreamCut | None:
    """The furthest cut that is not after any subscriber's: their intersection, since two may be concurrent. None
    without any."""
    cuts = list(subscribers)
    return reduce(lambda first, second: intersection(view, first, second), cuts) if cuts else None


def lost_until(view: StreamView, subscriber: StreamCut, cut: StreamCut) -> StreamCut | None:
    """The cut up to which a truncation at `cut` removes events that a subscriber has not read; None if it removes
    none."""
    return None if is_before(view, cut, subscriber) else union(view, subscriber, cut)
