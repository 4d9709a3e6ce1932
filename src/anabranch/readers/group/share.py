"""One reader's part in the shared state of its group: joining, signs of life, accepted positions, segments, leaving.

For one thread at a time; whoever owns it locks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from anabranch.core import group as changes
from anabranch.core.group import Checkpoint, GroupState, Views
from anabranch.errors import GroupNotFound, ReaderNotInGroup, StreamNotFound
from anabranch.model.append import Part
from anabranch.model.ids import Micros
from anabranch.model.position import StreamSegment
from anabranch.readers.group.watch import Watch
from anabranch.readers.synchronizer import StateSynchronizer
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

_BEATS_PER_LEASE = 4


class Share:
    """A membership. Every call raises ReaderNotInGroup once it ended, GroupNotFound where the group was deleted."""

    def __init__(self, group: str, reader: str, shared: StateSynchronizer[GroupState], runtime: Runtime) -> None:
        self.group = group
        self.reader = reader
        self._shared = shared
        self._clock = runtime.clock
        self.session = token(runtime.ids)  # of this opening, and of no other
        self._lease_s = shared.state.lease_us / 1e6
        self._watch = Watch(reader, self._lease_s)
        self._beat_at = self._clock.monotonic()
        self._known_at = self._beat_at

    @property
    def state(self) -> GroupState:
        """The group's state as last seen."""
        return self._shared.state

    @property
    def owned(self) -> dict[StreamSegment, int]:
        """The segments this reader has, as last seen, and its accepted positions."""
        return self.state.owned(self.reader)

    @property
    def silent_s(self) -> float:
        """For how many seconds the group has not heard of this reader, at most: after a lease it may be presumed dead."""
        return self._clock.monotonic() - self._known_at

    @property
    def changed(self) -> bool:
        """True if somebody changed the state since it was last seen."""
        try:
            return self._shared.stream.latest() != self._shared.revision
        except StreamNotFound as exc:
            raise GroupNotFound(self.group) from exc

    @property
    def awaited_checkpoint(self) -> Checkpoint | None:
        """The checkpoint that waits for this reader, as last seen."""
        checkpoint = self.state.checkpoint
        return checkpoint if checkpoint is not None and self.reader in checkpoint.waiting else None

    def join(self) -> None:
        """Become a member, in place of one of the same name."""
        self._update(lambda state: changes.join(state, self.reader, self.session, Micros(self._clock.now())))

    def meet(
        self,
        positions: Mapping[StreamSegment, int],
        views: Views,
        *,
        keep: Collection[StreamSegment],
        at_checkpoint: str | None = None,
    ) -> None:
        """Tell how far this reader is, hear how far the others are, and work out who reads what.

        What is in `keep` is not given up. With `at_checkpoint` it comes to the one of that name, if that waits for it.
        """
        self._shared.fetch() if self.changed else None
        now_s = self._clock.monotonic()
        dead = self._watch.look(self.state.members, now_s)
        due = now_s - self._beat_at >= self._lease_s / _BEATS_PER_LEASE

        def change(state: GroupState) -> GroupState:
            before = self._accepted(state, positions)
            after = changes.leave(before, self._watch.silent(before.members, dead))
            now = self._clock.now()
            if changes.is_due(after, now):
                after = changes.begin_checkpoint(after, self.group, f"auto-{now}", now)
            if after.checkpoint is not None and after.checkpoint.name == at_checkpoint:
                after = changes.come_to_checkpoint(after, self.reader)
            after = changes.rebalance(changes.advance(after, views), self.reader, views, keep)
            return changes.beat(after, self.reader) if due or after != state else state

        self._update(change)
        self._known_at = now_s
        if due:
            self._beat_at = now_s

    def commit(self, positions: Mapping[StreamSegment, int], unit: Callable[[Part], None]) -> None:
        """Have the positions accepted as a part of somebody's atomic unit; see `StateSynchronizer.update_within`."""
        now_s = self._clock.monotonic()

        def change(state: GroupState) -> GroupState:
            accepted = self._accepted(state, positions)
            # A segment that others saw accepted to its end has left the positions since.
            assert all(accepted.positions.get(each, at) >= at for each, at in positions.items()), (
                "a position is missing"
            )
            return changes.beat(accepted, self.reader)

        self._within(lambda: self._shared.update_within(change, unit))
        self._known_at = self._beat_at = now_s

    def skip_truncated(self, views: Views) -> None:
        """Let the group go on behind what was truncated."""
        self._update(lambda state: changes.skip_truncated(self._accepted(state, {}), views))

    def leave(self, positions: Mapping[StreamSegment, int], views: Views) -> None:
        """End the membership; the segments are free at once."""

        def change(state: GroupState) -> GroupState:
            return changes.leave(changes.advance(self._accepted(state, positions), views), [self.reader])

        self._update(change)

    def _accepted(self, state: GroupState, positions: Mapping[StreamSegment, int]) -> GroupState:
        changes.need_member(state, self.group, self.reader, self.session)
        owned = state.owned(self.reader)
        if not owned.keys() >= {
            each for each, offset in positions.items() if offset > state.positions.get(each, offset)
        }:
            raise ReaderNotInGroup(self.group, self.reader)
        return changes.accept(state, self.reader, positions)

    def _update(self, change: Callable[[GroupState], GroupState]) -> None:
        self._within(lambda: self._shared.update(change))

    def _within(self, call: Callable[[], GroupState]) -> None:
        try:
            call()
        except StreamNotFound as exc:
            raise GroupNotFound(self.group) from exc
