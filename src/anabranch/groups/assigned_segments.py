"""The segments that are assigned to a reader of a group, with what was read of them and accepted by the group."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.core.group import check_offsets
from anabranch.errors import Truncated
from anabranch.groups.cursor import GroupCursor, GroupDelivery
from anabranch.groups.membership import Membership
from anabranch.groups.ports import StoredPositions
from anabranch.groups.progress import GroupReaderProgress
from anabranch.model.position import StreamSegment


class AssignedSegments:
    """Keeps three things consistent: the reader's membership, its cursor, and its progress. For one thread at a time;
    the owner locks. `stored` holds positions in the application's own database and is read only in the application's
    thread. All calls raise what `Membership` raises."""

    def __init__(
        self, share: Membership, cursor: GroupCursor, progress: GroupReaderProgress, stored: StoredPositions | None
    ) -> None:
        self._membership = share
        self._cursor = cursor
        self._progress = progress
        self._stored = stored

    def next(self, *, since_sync_s_max: float) -> GroupDelivery | None:
        """The next rows, or None if there are none. First marks the current batch as processed, and syncs with the
        group if the last sync is more than `since_sync_s_max` seconds ago. Raises Truncated."""
        self.finish_current()
        if self._membership.since_sync_s > since_sync_s_max:
            self.sync_with_group()  # the background task fails to sync: this call must, or raise
        delivery = self._pull()
        if delivery is None:
            if self._cursor.refresh():
                delivery = self._pull()
            if delivery is None and (self._membership.changed or self._exhausted()):
                self.sync_with_group()
                delivery = self._pull()
        if delivery is not None and self._progress.mode == "at_most_once":
            self._accept_ahead(delivery)
        return delivery

    def _accept_ahead(self, delivery: GroupDelivery) -> None:
        """Have the group accept rows before they are handed out. If that fails, the next call returns them."""
        self._progress.mark_processed_ahead(delivery)
        try:
            self.sync_with_group()
        except BaseException:
            if delivery.segment in self._cursor.positions:
                self._cursor.seek(delivery.segment, delivery.rows.first)
            raise

    def enter(self) -> None:
        """Become a member of the group, and get the first segments."""
        self._membership.join(self._cursor.views)
        self.sync_with_group()

    def finish_current(self) -> None:
        """Mark the events handed out of the current batch as processed, according to the delivery mode."""
        resume_point = self._progress.resume_point()
        if resume_point is not None:  # not all events of the batch were requested
            self._cursor.seek(*resume_point)
        self._progress.finish_current()

    def finished(self) -> bool:
        """True if the group has read everything, and nothing can follow."""
        return self._membership.finished(self._cursor.views)

    def sync_with_group(self, *, at_checkpoint: str | None = None) -> None:
        """Exchange state with the group; see `Membership.sync`."""
        progress, views = self._progress, self._cursor.views
        self._membership.sync(progress.processed(), views, keep=progress.in_use(), at_checkpoint=at_checkpoint)
        self._apply_assignment()

    def refresh_and_sync(self) -> None:
        """Like `sync_with_group`, after reloading the streams' views."""
        self._cursor.refresh()
        self.sync_with_group()

    def resume(self, handed_out: Mapping[StreamSegment, int], processed: Mapping[StreamSegment, int]) -> None:
        """Continue after what was handed out to the same consumer before, in the segments that it still has. Raises
        InvalidCut for a position after the end of what can be read."""
        owned = self._membership.owned
        check_offsets(
            self._membership.state,
            {each: handed_out[each] for each in handed_out.keys() & owned.keys()},
            self._cursor.views,
        )
        for segment, accepted in owned.items():
            offset = handed_out.get(segment, 0)
            if offset > accepted:
                done = min(max(accepted, processed.get(segment, 0)), offset)
                self._progress.resume(segment, handed_out=offset, processed=done)
                self._cursor.seek(segment, offset)
        self.sync_with_group()

    def leave(self) -> None:
        """End the membership: processed events are accepted."""
        self._membership.leave(self._progress.processed(), self._cursor.views)

    def close(self) -> None:
        """Stop reading."""
        self._cursor.close()

    def _pull(self) -> GroupDelivery | None:
        self._start_new_segments()
        try:
            return self._cursor.pull()
        except Truncated:
            self._membership.skip_truncated(self._cursor.views)
            self._apply_assignment()
            raise

    def _exhausted(self) -> bool:
        """True if one of the reader's segments is read to its end and processed. Other readers may be waiting for its
        end."""
        processed = self._progress.processed()
        return any(processed[segment] >= self._cursor.positions[segment] for segment in self._cursor.exhausted())

    def _apply_assignment(self) -> None:
        """Add the segments that are now assigned to this reader, and remove those that no longer are."""
        owned, positions, processed = self._membership.owned, self._progress.position(), self._progress.processed()
        removed = positions.keys() - owned.keys()
        self._cursor.remove(removed)
        for segment in removed:
            self._progress.remove(segment)
        for segment, offset in owned.items():
            # The group is ahead of this reader only where the events it would read were truncated.
            if segment not in positions or offset > max(positions[segment], processed[segment]):
                self._progress.seek(segment, offset)
                if self._stored is None:
                    self._cursor.seek(segment, offset)

    def _start_new_segments(self) -> None:
        """Start the segments whose offset is stored in the application's own database. Called in the application's
        thread, which may use that database."""
        if self._stored is None:
            return
        for segment, offset in self._progress.position().items():
            if segment not in self._cursor.positions:
                offset = max(offset, self._stored.load(self._membership.group, segment) or 0)
                self._progress.seek(segment, offset)
                self._cursor.seek(segment, offset)
