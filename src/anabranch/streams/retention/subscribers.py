"""The subscribers of a stream: the reader groups that its retention policy waits for, and their positions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from anabranch.catalog.port import Catalog, Reading, Writing
from anabranch.core import cuts
from anabranch.core.group import GroupState
from anabranch.errors import StreamNotFound
from anabranch.log.sizes import measure
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamView
from anabranch.notifications.kinds import GROUP_PASSED
from anabranch.streams.retention import consumption
from anabranch.streams.retention.policy import Release, Retention
from anabranch.streams.retention.stored import Subscribed, current_group, name_of, put_subscribed, subscribed

# Reads a group's state within a transaction; None while the group is being created. A group is opened by the id of the
# stream that keeps its state. Opening and calling raise StreamNotFound where the group was deleted.
StateIn: TypeAlias = Callable[[Reading], GroupState | None]
OpenGroup: TypeAlias = Callable[[StreamId], StateIn]
# `not created`: no group of the name ever existed, and retention waits for it. `deleted`: retention does not wait for
# it until one is created again.
SubscriberState: TypeAlias = Literal["reading", "not created", "deleted", "reads other streams"]


@dataclass(frozen=True, slots=True)
class SubscriberPosition:
    """One subscriber as of a transaction. Retention keeps the events after `cut` for it; None if it keeps none."""

    subscribed: Subscribed
    state: SubscriberState
    cut: StreamCut | None


@dataclass(frozen=True, slots=True)
class LostEvents:
    """A truncation removed `events` that a reader `group` had not read yet, of `bytes` logical bytes."""

    stream: str
    group: str
    events: int
    bytes: int


class Subscribers:
    """The subscribers of one stream. Created outside a transaction, queried within one. Changes of the groups in
    between are detected: a group that was replaced by another of its name keeps everything until the next lookup."""

    def __init__(self, catalog: Catalog, stream: StreamId, open_group: OpenGroup) -> None:
        with catalog.reading() as txn:
            lost_events = {each.name: current_group(txn, each) for each in subscribed(txn, stream)}
        self._states: dict[StreamId, StateIn] = {}
        for ident in lost_events.values():
            if ident is not None:
                try:
                    self._states[ident] = open_group(ident)
                except StreamNotFound:
                    continue

    def positions(self, txn: Reading, view: StreamView, release: Release) -> list[SubscriberPosition]:
        """The position of each subscriber, in the order of the policy."""
        return [self._position_of(txn, view, each, release) for each in subscribed(txn, view.info.id)]

    def _position_of(self, txn: Reading, view: StreamView, each: Subscribed, release: Release) -> SubscriberPosition:
        ident = current_group(txn, each)
        if ident is None:
            # A group that never existed has read nothing; a deleted one has no reader that could miss anything.
            return SubscriberPosition(
                each, *(("not created", cuts.head_cut(view)) if each.id is None else ("deleted", None))
            )
        state = self._states[ident](txn) if ident in self._states else None
        if state is None:
            return SubscriberPosition(each, "not created", cuts.head_cut(view))
        cut = consumption.released(state, view, release)
        record = each if each.id == ident else Subscribed(each.name, ident)
        return SubscriberPosition(record, "reads other streams" if cut is None else "reading", cut)


def consumed(view: StreamView, positions: Sequence[SubscriberPosition]) -> StreamCut | None:
    """The cut up to which all subscribers have read; None where retention waits for none."""
    return consumption.consumed(view, [each.cut for each in positions if each.cut is not None])


def record_lost_events(
    txn: Writing,
    view: StreamView,
    policy: Retention,
    positions: Sequence[SubscriberPosition],
    cut: StreamCut,
    now: Micros,
) -> list[LostEvents]:
    """Record the events that a truncation at `cut` removes unread from each subscriber, with a change for listeners, and
    the ids of the groups. Called before the truncation, in its transaction."""
    lost_events: list[LostEvents] = []
    records: list[Subscribed] = []
    for each in positions:
        record = each.subscribed
        end = None if each.cut is None else consumption.lost_until(view, each.cut, cut)
        if each.cut is not None and end is not None:
            lost = measure(txn, view, each.cut, end)
            passed = LostEvents(str(view.info.name), name_of(txn, record), lost.events, lost.bytes)
            lost_events.append(passed)
            record = replace(record, passed_at=now, events=record.events + lost.events, bytes=record.bytes + lost.bytes)
            detail = {"group": passed.group, "events": lost.events, "bytes": lost.bytes, "head": str(cut)}
            txn.add_change(view.info.id, GROUP_PASSED, detail, now=now)
        records.append(record)
    if records != subscribed(txn, view.info.id):
        put_subscribed(txn, view.info.id, policy, records)
    return lost_events
