"""Lineage and differences of streams, as methods of the stream manager."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.core.diff import Range, plan_diff
from anabranch.core.display import Displayed
from anabranch.log.sizes import segment_bytes
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.origin import Origin
from anabranch.model.segment_range import Distance, SegmentRange
from anabranch.model.stream import StreamView
from anabranch.streams.arguments import StreamKey, stream_key
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.lineage.origins import origins_of


@dataclass(frozen=True, slots=True)
class Diff:
    """The ranges that two streams share, as views of the same bytes, and those that only one of them has.

    `shared`: the same events in both, as ranges of the first with the segment and offset in the second. `only_first`,
    `only_second`: segment ranges of one alone. `alike`: from their heads up to these cuts, readers of both get exactly
    the same events.
    """

    first: StreamId
    second: StreamId
    alike: tuple[StreamCut, StreamCut]
    shared: tuple[tuple[SegmentRange, SegmentId, int], ...]
    only_first: tuple[SegmentRange, ...]
    only_second: tuple[SegmentRange, ...]

    @property
    def shared_distance(self) -> Distance:
        """How much of the first stream is shared; a range that the second has twice counts once."""
        return _sum(part for part in {part for part, _, _ in self.shared})

    @property
    def only_first_distance(self) -> Distance:
        """How much only the first has."""
        return _sum(self.only_first)

    @property
    def only_second_distance(self) -> Distance:
        """How much only the second has."""
        return _sum(self.only_second)


class Lineage(Displayed):
    """Where the events of streams came from, and where two streams differ."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._catalog = changes.catalog

    def diff(self, first: StreamKey, second: StreamKey) -> Diff:
        """Where two streams view the same bytes and where they differ. No event is read: equal events that were
        appended twice count as different. Raises StreamNotFound."""
        with self._catalog.reading() as txn:
            views = [need_view(txn, stream_key(name)) for name in (first, second)]
            plan = plan_diff(*views)

            def weighed(view: StreamView, ranges: Iterable[Range]) -> tuple[SegmentRange, ...]:
                return tuple(SegmentRange(*part, segment_bytes(txn, view, *part)) for part in ranges)

            shared = weighed(views[0], [(each.segment, each.start, each.start + each.events) for each in plan.shared])
            return Diff(
                views[0].info.id,
                views[1].info.id,
                plan.common_until,
                tuple((part, each.other, each.other_start) for part, each in zip(shared, plan.shared, strict=True)),
                weighed(views[0], plan.only_first),
                weighed(views[1], plan.only_second),
            )

    def origins(self, name: StreamKey) -> tuple[Origin, ...]:
        """Where the stream's events came from, except those that writers appended: the streams it was copied or stitched
        from and those appended to it, the oldest first. Available after the sources are deleted. Raises
        StreamNotFound."""
        with self._catalog.reading() as txn:
            return origins_of(txn, need_info(txn, stream_key(name)).id)


def _sum(parts: Iterable[SegmentRange]) -> Distance:
    chosen = list(parts)
    return Distance(sum(part.events for part in chosen), sum(part.bytes for part in chosen))
