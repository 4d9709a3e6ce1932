"""Consumption-based retention of a store: the subscribers of its streams, and truncation by them."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.catalog.port import Reading
from anabranch.core import cuts
from anabranch.core.display import Displayed
from anabranch.core.group import GroupState
from anabranch.core.group_format import GroupStateCodec
from anabranch.errors import InvalidArgument, StreamNotFound
from anabranch.log.sizes import measure
from anabranch.model.cut import TAIL, Edge, StreamCut
from anabranch.model.group_name import group_stream
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.store.parts import StoreContext
from anabranch.store.shared_state import SharedState
from anabranch.streams.algebra.cuts import CutAt
from anabranch.streams.arguments import StreamKey, stream_key
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.manager import Streams
from anabranch.streams.retention.apply import RetainReport, retain_one
from anabranch.streams.retention.policy import Retention
from anabranch.streams.retention.stored import name_of, stored_policy, streams_with_groups
from anabranch.streams.retention.subscribers import StateIn, Subscribers, SubscriberState


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A reader group that the retention of `stream` waits for.

    `state` is `reading`; `not created` while no group of the name has been created, which keeps everything;
    `deleted` or `reads other streams`, which keep nothing. `cut` is the start of the events kept for the group, None if
    there are none; from there to the tail there are `events` events of `bytes` logical bytes. If the group lagged
    beyond the policy's bound, retention truncated `passed_events` events of `passed_bytes` in all that it had not read,
    last at `passed_at`; None if that never happened."""

    stream: str
    group: str
    state: SubscriberState
    cut: StreamCut | None
    events: int
    bytes: int
    passed_at: Micros | None
    passed_events: int
    passed_bytes: int


class StoreSubscribers(Displayed):
    """The reader groups that retention waits for: list them, and truncate what all of them have read."""

    def __init__(self, parts: StoreContext, streams: Streams, shared: SharedState, cut_at: CutAt) -> None:
        self._parts = parts
        self._streams = streams
        self._shared_state = shared
        self._cut_at = cut_at

    def list(self, stream: str | StreamName | None = None) -> builtins.list[Subscriber]:
        """The subscribers of one stream in the order of its policy, or of all streams; see `RetainConsumed`. Raises
        StreamNotFound."""
        self._parts.check_open()
        if stream is not None:
            return [*self._subscribers(self._streams.get(stream).id)]
        with self._parts.catalog.reading() as reading:
            chosen = streams_with_groups(reading)
        found: list[Subscriber] = []
        for each in chosen:
            try:
                found += self._subscribers(each)
            except StreamNotFound:  # deleted meanwhile
                continue
        return sorted(found, key=lambda each: (each.stream, each.group))

    def _subscribers(self, stream: StreamId) -> Iterator[Subscriber]:
        known = Subscribers(self._parts.catalog, stream, self.open_group)
        with self._parts.catalog.reading() as reading:
            view, policy = need_view(reading, stream), stored_policy(reading, stream)
            if policy is None:
                return
            for each in known.positions(reading, view, policy.release):
                left = None if each.cut is None else measure(reading, view, each.cut, cuts.tail_cut(view))
                yield Subscriber(
                    str(view.info.name),
                    name_of(reading, each.subscribed),
                    each.state,
                    each.cut,
                    0 if left is None else left.events,
                    0 if left is None else left.bytes,
                    each.subscribed.passed_at,
                    each.subscribed.events,
                    each.subscribed.bytes,
                )

    def release(self, stream: StreamKey, limit: StreamCut | Edge = TAIL) -> RetainReport:
        """Truncate what all subscribers of a stream have read and its policy releases, at most up to a place. Does what
        `streams.truncate(by="groups")` does, and returns a report. Raises InvalidArgument if its policy names no
        groups, StreamNotFound, InvalidCut."""
        self._parts.check_open()
        with self._parts.catalog.reading() as reading:
            info = need_info(reading, stream_key(stream))
            policy = stored_policy(reading, info.id)
        if policy is None or not policy.groups:
            raise InvalidArgument(
                f"no reader group is a subscriber of '{info.name}': name them with retention=RetainConsumed(groups=…)"
            )
        report = retain_one(
            self._parts.catalog,
            self._parts.runtime,
            self._cut_at,
            info.id,
            policy,
            open_group=self.open_group,
            limit=limit,
        )
        self._parts.tail.notify()
        return report

    def check(self, stream: StreamKey, policy: Retention) -> None:
        """Raise InvalidArgument if a group of the policy exists and does not read the stream."""
        with self._parts.catalog.reading() as reading:
            own = need_info(reading, stream_key(stream))
            found = [(name, reading.stream(group_stream(name))) for name in policy.groups]
        for name, info in found:
            if info is None:
                continue
            state_in = self.open_group(info.id)
            with self._parts.catalog.reading() as reading:
                state = state_in(reading)
            if state is not None and own.id not in state.streams:
                raise InvalidArgument(
                    f"reader group '{name}' does not read '{own.name}', so it can't be a subscriber of it"
                )

    def open_group(self, group: StreamId) -> StateIn:
        """A function that reads the state of the group kept on this stream."""
        entries, codec = self._shared_state.by_id(group), GroupStateCodec()

        def state(reading: Reading) -> GroupState | None:
            entry = entries.last_within(reading)
            return None if entry is None else codec.decode(entry.value)

        return state
