"""Planted faults of reader groups; see `planted_faults.core`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import reduce
from typing import Any, Final

from anabranch.core.cuts import union
from anabranch.groups.output import OutputUnits
from anabranch.model.append import Part, Sequence
from anabranch.model.cut import StreamCut
from anabranch.model.position import StreamSegment
from anabranch.model.stream import StreamView
from anabranch.shared_state.revisioned_stream import RevisionedStream
from anabranch.streams import publish
from anabranch.streams.retention import consumption
from anabranch.streams.retention.subscribers import SubscriberPosition, Subscribers
from anabranch.testing.faults import Action
from tests.simulation.clients import GROUPS, SUBSCRIBERS
from tests.simulation.planted_faults.core import PlantedFault, _replaced
from tests.simulation.simulation import FaultRates

__all__ = ["AWAY", "GROUP_FAULTS"]


def leave_the_position_out_of_the_unit() -> AbstractContextManager[None]:
    """A group's output is stored, but its position is not."""
    publish_whole = publish._publish

    def alone(catalog: Any, blobs: Any, runtime: Any, publications: Any, request: Any, beside: Any, *rest: Any) -> bool:
        return publish_whole(catalog, blobs, runtime, publications, request, (), *rest)

    return _replaced(publish, "_publish", alone)


def accept_without_the_condition() -> AbstractContextManager[None]:
    """The position stored with an output replaces what other readers have accepted meanwhile."""
    part = RevisionedStream.part

    def faulty(self: RevisionedStream, value: bytes, expected: int, *, sequence: Sequence | None = None) -> Part:
        return replace(part(self, value, expected, sequence=sequence), expected=None)

    return _replaced(RevisionedStream, "part", faulty)


def recognise_a_retry_by_positions() -> AbstractContextManager[None]:
    """A commit counts as the retry of a failed one only if the reader's positions are unchanged: if a segment was
    added or removed in between, the output is written twice."""

    def faulty(self: OutputUnits, positions: Mapping[StreamSegment, int], handed_out: int) -> bool:
        return bool(self._pending) and self._pending[-1].positions == positions

    return _replaced(OutputUnits, "_is_retry", faulty)


def release_what_the_fastest_has_read() -> AbstractContextManager[None]:
    """Retention uses the furthest of several subscribers instead of the slowest."""

    def faulty(view: StreamView, subscribers: Iterable[StreamCut]) -> StreamCut | None:
        cuts = list(subscribers)
        return reduce(lambda first, second: union(view, first, second), cuts) if cuts else None

    return _replaced(consumption, "consumed", faulty)


def forget_groups_that_are_still_to_come() -> AbstractContextManager[None]:
    """A subscriber that was never created does not hold retention back."""
    stand = Subscribers._position_of

    def faulty(self: Subscribers, *args: Any) -> SubscriberPosition:
        found = stand(self, *args)
        return replace(found, cut=None) if found.state == "not created" else found

    return _replaced(Subscribers, "_position_of", faulty)


# Commits fail, and not only by lost answers.
AWAY: Final[FaultRates] = {"catalog.writing": {Action.UNCERTAIN_LOST: 0.1}}

GROUP_FAULTS: Final = (
    PlantedFault(leave_the_position_out_of_the_unit, ("the group read",), mixes=GROUPS),
    PlantedFault(accept_without_the_condition, ("the group read",), mixes=GROUPS),
    PlantedFault(recognise_a_retry_by_positions, ("the group read",), fault_rates=AWAY, mixes=GROUPS),
    PlantedFault(release_what_the_fastest_has_read, ("retention passed group", "was never given"), mixes=SUBSCRIBERS),
    PlantedFault(
        forget_groups_that_are_still_to_come, ("retention passed group", "was never given"), mixes=SUBSCRIBERS
    ),
)
