"""A group reader whose consumer is in another process. A broker holds the reader, and reports the consumer's progress
to the reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from anabranch.groups.cursor import GroupDelivery
from anabranch.groups.reader import GroupReader
from anabranch.model.position import Position, StreamSegment


class HostedGroupReader(GroupReader):
    """A group reader whose owner reports how far its consumer got in the current batch. For one thread at a time, like
    every group reader."""

    @property
    def resets(self) -> int:
        """The group's count of resets when it was opened."""
        return self._membership.state.resets

    @property
    def refresh_s(self) -> float:
        """How often it reads the group's state and reports its position, in seconds."""
        return self._refresh_s

    @property
    def lease_s(self) -> float:
        """How long the group waits for a heartbeat, in seconds."""
        return self._membership.state.lease_us / 1e6

    @property
    def last_output(self) -> int:
        """The number of the consumer's last `commit` with outputs that was written; 0 before the first."""
        return self._output.written

    def resume(self, handed_out: Mapping[StreamSegment, int], processed: Mapping[StreamSegment, int]) -> None:
        """Continue after the events that the consumer received and processed through another object, in the segments
        that the reader still has. Raises InvalidCut for a position after the end of what can be read."""
        with self._lock:
            self._require_usable()
            self._assigned.resume(handed_out, processed)

    def pull(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> GroupDelivery | None:
        """The next batch; no event of it counts as handed out yet. The events of the current batch that were handed out count
        as processed. None if there is no batch within `timeout_s` seconds, at the group's end, or once `interrupted()`.
        Call `wake` when the result of `interrupted` changes."""
        return self._wait_until(timeout_s, lambda: self._closed or interrupted())

    def commit_to(
        self, positions: Mapping[StreamSegment, int], outputs: Mapping[str, Any] | None = None, *, handed_out: int
    ) -> None:
        """Like `commit`, but only up to these positions; `handed_out` is the number of events handed out up to them. Segments
        that the reader no longer has are left out. May be called while a `pull` in another thread waits."""
        with self._lock:
            self._require_usable()
            before = self._progress.processed()
            ahead = {each: max(offset, before.get(each, 0)) for each, offset in positions.items()}
            self._commit({**before, **ahead}, outputs or {}, handed_out)

    @property
    def handed_out(self) -> int:
        """The number of events handed out since it was opened."""
        return self._progress.handed_out

    @property
    def processed(self) -> Position:
        """The position after the last processed event, in each segment that it has now."""
        return Position.of(self._progress.processed())

    def wake(self) -> None:
        """Have a `pull` in another thread look at `interrupted()`."""
        self._tail.notify()

    @property
    def at_end(self) -> bool:
        """True if the group has read everything, and nothing can follow."""
        with self._lock:
            return self._closed or self._assigned.finished()

    def advance(self, handed_out: int, *, whole: bool) -> None:
        """Record that the consumer received the first `handed_out` events of the current batch, or the `whole` batch."""
        with self._lock:
            current = self._progress.current
            if current is None or current.remaining is None:
                return
            if whole:
                self._progress.hand_out_whole(current.delivery)
            else:
                deque(islice(current.remaining, max(0, handed_out - current.handed_out)), maxlen=0)
