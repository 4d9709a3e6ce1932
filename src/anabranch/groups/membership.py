"""One reader's part in the shared state of its group: joining, heartbeats, accepted positions, segments, leaving.

For one thread at a time; the owner locks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from anabranch.core import group as changes
from anabranch.core.group import Checkpoint, GroupState, Views
from anabranch.errors import GroupNotFound, ReaderNotInGroup, StreamNotFound
from anabranch.groups.liveness import LivenessMonitor
from anabranch.model.append import Part
from anabranch.model.ids import Micros
from anabranch.model.position import StreamSegment
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.shared_state.synchronizer import StateSynchronizer

_HEARTBEATS_PER_LEASE = 4


@dataclass(frozen=True, slots=True)
class Opening:
    """One opening of a reader. A consumer, with the unique id `consumer`, may open the same reader several times;
    `attempt` numbers these openings. `resets` is the group's count of resets at the first opening; None for the first
    opening itself."""

    consumer: str
    attempt: int
    resets: int | None = None

    def session(self, unique: str) -> str:
        """The name of a session of this opening. If a network repeats bytes, two brokers may get the same opening. Each
        has its own session, with its own `unique`."""
        return f"{self.consumer}-{self.attempt}-{unique}"

    def follows(self, session: str) -> bool:
        """True if this opening may replace the opening of that session. Any opening may replace an earlier one of the
        same consumer; a first opening may also replace those of other consumers. A repeated opening replaces
        nothing."""
        consumer, _, rest = session.partition("-")
        if consumer == self.consumer and rest:
            return int(rest.partition("-")[0]) < self.attempt
        return self.resets is None


class Membership:
    """A membership. Every call raises ReaderNotInGroup once it ended, GroupNotFound where the group was deleted."""

    def __init__(
        self,
        group: str,
        reader: str,
        shared: StateSynchronizer[GroupState],
        runtime: Runtime,
        *,
        opening: Opening | None = None,
    ) -> None:
        """With `opening`, the membership continues an earlier one of the same consumer, unless another consumer has
        opened the name since."""
        self.group = group
        self.reader = reader
        self._shared = shared
        self._clock = runtime.clock
        unique = token(runtime.ids)
        self.session = unique if opening is None else opening.session(unique)
        self._opening = opening
        self._resets = shared.state.resets if opening is None or opening.resets is None else opening.resets
        self._lease_s = shared.state.lease_us / 1e6
        self._liveness = LivenessMonitor(reader, self._lease_s)
        self._last_heartbeat_at = self._clock.monotonic()
        self._last_sync_at = self._last_heartbeat_at

    @property
    def state(self) -> GroupState:
        """The group's state as last seen."""
        return self._shared.state

    @property
    def owned(self) -> dict[StreamSegment, int]:
        """The segments this reader has, as last seen, and its accepted positions."""
        return self.state.owned(self.reader)

    @property
    def since_sync_s(self) -> float:
        """Seconds since this reader last updated the group's state: after a lease it may be presumed dead."""
        return self._clock.monotonic() - self._last_sync_at

    @property
    def changed(self) -> bool:
        """True if the state was changed since it was last seen."""
        try:
            return self._shared.stream.latest() != self._shared.revision
        except StreamNotFound as exc:
            raise GroupNotFound(self.group) from exc

    @property
    def awaited_checkpoint(self) -> Checkpoint | None:
        """The checkpoint that waits for this reader, as last seen."""
        checkpoint = self.state.checkpoint
        return checkpoint if checkpoint is not None and self.reader in checkpoint.waiting else None

    def join(self, views: Views) -> None:
        """Become a member, replacing a member of the same name. Also raises ReaderNotInGroup if the group was reset
        since this object was created: the group may have other streams and ends now."""
        names = {stream: str(view.info.name) for stream, view in views.items()}

        def change(state: GroupState) -> GroupState:
            member = state.members.get(self.reader)
            if member is not None and member.session == self.session:
                return state  # this update has taken place already, and its answer was lost
            taken = self._opening is not None and member is not None and not self._opening.follows(member.session)
            if state.resets != self._resets or taken:
                raise ReaderNotInGroup(self.group, self.reader)
            return changes.join(state, self.reader, self.session, Micros(self._clock.now()), names)

        self._update(change)

    def finished(self, views: Views) -> bool:
        """True if the group has read everything, and nothing can follow."""
        changes.require_member(self.state, self.group, self.reader, self.session)  # after a reset it has other streams
        return self.state.finished(views)

    def sync(
        self,
        positions: Mapping[StreamSegment, int],
        views: Views,
        *,
        keep: Collection[StreamSegment],
        at_checkpoint: str | None = None,
    ) -> None:
        """Report this reader's positions, fetch those of the others, and rebalance the segments.

        Segments in `keep` are not released. With `at_checkpoint`, the reader reaches the checkpoint of that name, if
        the checkpoint waits for this reader.
        """
        self._shared.fetch() if self.changed else None
        now_s = self._clock.monotonic()
        dead = self._liveness.observe(self.state.members, now_s)
        due = now_s - self._last_heartbeat_at >= self._lease_s / _HEARTBEATS_PER_LEASE

        def change(state: GroupState) -> GroupState:
            before = self._accepted(state, positions)
            after = changes.leave(before, self._liveness.still_dead(before.members, dead))
            now = self._clock.now()
            if changes.checkpoint_due(after, now):
                after = changes.begin_checkpoint(after, self.group, f"auto-{now}", now)
            if after.checkpoint is not None and after.checkpoint.name == at_checkpoint:
                after = changes.reach_checkpoint(after, self.reader)
            after = changes.rebalance(changes.advance(after, views), self.reader, views, keep)
            return changes.record_heartbeat(after, self.reader) if due or after != state else state

        self._update(change)
        self._last_sync_at = now_s
        if due:
            self._last_heartbeat_at = now_s

    def commit(self, positions: Mapping[StreamSegment, int], unit: Callable[[Part], None]) -> None:
        """Have the positions accepted as part of the caller's atomic unit; see `StateSynchronizer.update_within`."""
        now_s = self._clock.monotonic()

        def change(state: GroupState) -> GroupState:
            accepted = self._accepted(state, positions)
            # A segment whose end others saw accepted is no longer among the positions.
            assert all(accepted.positions.get(each, at) >= at for each, at in positions.items()), (
                "a position is missing"
            )
            return changes.record_heartbeat(accepted, self.reader)

        self._translate_not_found(lambda: self._shared.update_within(change, unit))
        self._last_sync_at = self._last_heartbeat_at = now_s

    def skip_truncated(self, views: Views) -> None:
        """Move the group's positions past what was truncated."""
        self._update(lambda state: changes.skip_truncated(self._accepted(state, {}), views))

    def leave(self, positions: Mapping[StreamSegment, int], views: Views) -> None:
        """End the membership; the segments are free at once."""

        def change(state: GroupState) -> GroupState:
            return changes.leave(changes.advance(self._accepted(state, positions), views), [self.reader])

        self._update(change)

    def _accepted(self, state: GroupState, positions: Mapping[StreamSegment, int]) -> GroupState:
        changes.require_member(state, self.group, self.reader, self.session)
        owned = state.owned(self.reader)
        if not owned.keys() >= {
            each for each, offset in positions.items() if offset > state.positions.get(each, offset)
        }:
            raise ReaderNotInGroup(self.group, self.reader)
        return changes.accept(state, self.reader, positions)

    def _update(self, change: Callable[[GroupState], GroupState]) -> None:
        self._translate_not_found(lambda: self._shared.update(change))

    def _translate_not_found(self, call: Callable[[], GroupState]) -> None:
        try:
            call()
        except StreamNotFound as exc:
            raise GroupNotFound(self.group) from exc
