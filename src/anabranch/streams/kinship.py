"""What streams have to do with each other, as methods of the stream manager."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.core.diff import Range, plan_diff
from anabranch.log.sizes import segment_bytes
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.origin import Origin
from anabranch.model.segment_range import Distance, SegmentRange
from anabranch.model.stream import StreamView
from anabranch.streams.arguments import Which, which
from anabranch.streams.change import Changes
from anabranch.streams.find import need_info, need_view
from anabranch.streams.origins import origins_of


@dataclass(frozen=True, slots=True)
class Diff:
    """What two streams have in common, by the bytes that they view, and what only one of them has.

    `shared`: the same events in both, as ranges of the first with the place in the second. `only_first`, `only_second`:
    segment ranges of one alone. `alike`: from their heads up to these cuts, readers of both get the very same events.
    """

    first: StreamId
    second: StreamId
    alike: tuple[StreamCut, StreamCut]
    shared: tuple[tuple[SegmentRange, SegmentId, int], ...]
    only_first: tuple[SegmentRange, ...]
    only_second: tuple[SegmentRange, ...]

    @property
    def shared_distance(self) -> Distance:
        """How much of the first stream the second has too; what the second has twice counts once."""
        return _sum(part for part in {part for part, _, _ in self.shared})

    @property
    def only_first_distance(self) -> Distance:
        """How much only the first has."""
        return _sum(self.only_first)

    @property
    def only_second_distance(self) -> Distance:
        """How much only the second has."""
        return _sum(self.only_second)


class Kinship(Changes):
    """What `Streams` tells of copies, and of what they were made from."""

    def diff(self, first: Which, second: Which) -> Diff:
        """Where two streams view the same bytes and where they part. No event is looked at: equal events that were
        appended twice are two. Raises StreamNotFound."""
        with self._catalog.reading() as txn:
            views = [need_view(txn, which(name)) for name in (first, second)]
            plan = plan_diff(*views)

            def weighed(view: StreamView, ranges: Iterable[Range]) -> tuple[SegmentRange, ...]:
                return tuple(SegmentRange(*part, segment_bytes(txn, view, *part)) for part in ranges)

            shared = weighed(views[0], [(each.segment, each.start, each.start + each.events) for each in plan.shared])
            return Diff(
                views[0].info.id,
                views[1].info.id,
                plan.alike,
                tuple((part, each.other, each.other_start) for part, each in zip(shared, plan.shared, strict=True)),
                weighed(views[0], plan.own),
                weighed(views[1], plan.others),
            )

    def lineage(self, name: Which) -> tuple[Origin, ...]:
        """Where the stream's events came from, but for those that writers appended: what it was copied or stitched from,
        what was appended to it, the oldest first. It is told also when the sources are gone. Raises StreamNotFound."""
        with self._catalog.reading() as txn:
            return origins_of(txn, need_info(txn, which(name)).id)


def _sum(parts: Iterable[SegmentRange]) -> Distance:
    chosen = list(parts)
    return Distance(sum(part.events for part in chosen), sum(part.bytes for part in chosen))
