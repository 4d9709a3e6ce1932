"""A reader of a group: hands out the events of the segments that are assigned to it at the moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from anabranch.core.constant_columns import constant
from anabranch.core.watermarks import TimeWindow
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    Closed,
    GroupNotFound,
    InvalidArgument,
    ReaderNotInGroup,
    StoreUnavailable,
)
from anabranch.groups.assigned_segments import AssignedSegments
from anabranch.groups.consumer import GroupConsumer, check_positions
from anabranch.groups.cursor import GroupCursor, GroupDelivery
from anabranch.groups.membership import Membership
from anabranch.groups.output import OutputUnits
from anabranch.groups.ports import Outputs, StoredPositions
from anabranch.groups.progress import DeliveryMode, GroupReaderProgress
from anabranch.log.read import appended_of, offsets_of
from anabranch.log.tail import Tail
from anabranch.model.columns import ADDED
from anabranch.model.event import Event
from anabranch.model.position import Position, StreamSegment
from anabranch.runtime.log_events import READER_LOST
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime


class GroupReader(GroupConsumer[GroupDelivery]):
    """Reads the segments of a group's streams that are assigned to it. For one consumer; only `close` may be called
    from another thread.

    All events of a key arrive in the order in which they were appended, across splits, merges and rebalances: a segment
    moves to another reader only after the events handed out are processed. An event counts as processed when the next
    one is requested.

    `delivery` says when a position is accepted, which is where the segment continues if this reader is killed.
    `at_least_once`: shortly after the event is processed; events in between are delivered again. `at_most_once`: before
    a batch of events is handed out; what was not processed is lost. `exactly_once`: only by `commit`, together with the
    output. When a reader is closed after an error, or a `with` block ends with one, the last event is not accepted.

    A background task sends heartbeats and reports positions once per refresh interval of the group, however long the
    application takes for an event. If the reader is presumed dead nevertheless, it gets ReaderNotInGroup within a batch
    of `limits.READER_ROWS_MAX`; nothing it reads until then is accepted.

    Raises while reading: ReaderNotInGroup, GroupNotFound, GroupStreamDeleted; Truncated once where the next events were
    truncated, after which reading continues at the head; CorruptBlob and BlobMissing.
    """

    def __init__(
        self,
        membership: Membership,
        cursor: GroupCursor,
        tail: Tail,
        runtime: Runtime,
        *,
        delivery: DeliveryMode = "at_least_once",
        outputs: Outputs,
        positions: StoredPositions | None = None,
        on_close: Callable[[GroupReader], None] | None = None,
        window: Callable[[str | None], TimeWindow],
        series: str | None = None,
    ) -> None:
        """`series`: see `OutputUnits`."""
        if delivery not in ("at_least_once", "at_most_once", "exactly_once"):
            raise InvalidArgument(f"expected delivery at_least_once, at_most_once or exactly_once, got '{delivery}'")
        check_positions(positions, delivery)
        super().__init__(runtime.tasks, tail.notify)
        self._membership = membership
        self._progress = GroupReaderProgress(delivery)
        self._assigned = AssignedSegments(membership, cursor, self._progress, positions)
        self._tail = tail
        self._clock = runtime.clock
        self._tracing = runtime.tracing
        self._refresh_s = min(membership.state.refresh_us, membership.state.lease_us // 8) / 1e6
        self._output = OutputUnits(membership, outputs, series=series)
        self._on_close = on_close
        self._window = window
        self._lock = runtime.tasks.lock()
        self._error: AnabranchError | None = None
        self._finish_on_close = True  # the events handed out count as processed when it is closed
        self._closing = False  # a `close` is in progress, or has finished
        self._assigned.enter()
        self._close_lock = runtime.tasks.lock()
        self._heartbeats = Periodic(
            runtime, f"heartbeat of reader {membership.reader}", self._refresh_s, self._heartbeat_round
        )
        self._heartbeats.start()

    def _facts(self) -> Mapping[str, object]:
        state = "closed" if self._closed else "open"
        return {"name": self.name, "group": self.group, "state": state, "segments": len(self._progress.segments)}

    # what it reads

    @property
    def name(self) -> str:
        """The reader's name in its group."""
        return self._membership.reader

    @property
    def group(self) -> str:
        """The group's name."""
        return self._membership.group

    @property
    def segments(self) -> list[StreamSegment]:
        """The segments that it reads now."""
        return sorted(self._progress.segments)

    @property
    def position(self) -> Position:
        """The position after the last event or batch handed out, in each segment that the reader has now."""
        return Position.of(self._progress.position())

    def time_window(self, stream: str | None = None) -> TimeWindow:
        """The event-time window of what the group has accepted, from the times that writers noted: no reader of the
        group will receive anything older than `lower`. See `ReaderGroup.time_window`."""
        return self._window(stream)

    # events and batches

    def _current_events(self) -> Iterator[Event]:
        return iter(()) if self._progress.current is None else self._progress.current.events

    def _whole(self, delivery: GroupDelivery) -> pa.RecordBatch:
        self._progress.hand_out_whole(delivery)
        rows, columns = delivery.rows, delivery.view.info.schema.columns
        schema = pa.schema([*columns, *ADDED], metadata={"stream": str(delivery.view.info.name)})
        added = [
            constant(delivery.segment.segment.packed, rows.batch.num_rows),
            offsets_of(rows),
            appended_of(rows),
        ]
        return pa.RecordBatch.from_arrays([*rows.batch.columns, *added], schema=schema)

    # positions

    def commit(self, outputs: Mapping[str, Any] | None = None) -> None:
        """Accept everything handed out so far, durably.

        `outputs` are batches by stream (anything with `__arrow_c_stream__`). They are appended in the same atomic unit
        as the position, so both are stored or neither, even after a crash. Output is therefore written exactly once.
        Raises ReaderNotInGroup, and then nothing was written; what `Writer.write_batch` raises.
        After StoreUnavailable or AppendUncertain the outcome is unknown. Calling again before reading more repeats the
        same commit, with the outputs of the first call; a later call writes that commit first.
        """
        with self._lock:
            self._require_usable()
            self._commit(self._progress.position(), outputs or {}, self._progress.handed_out)

    def _commit(self, positions: Mapping[StreamSegment, int], outputs: Mapping[str, Any], handed_out: int) -> None:
        try:
            self._output.commit(positions, outputs, handed_out=handed_out)
        except ReaderNotInGroup as exc:
            self._error = exc
            raise
        self._progress.mark_processed(positions)
        if not outputs:
            self._assigned.sync_with_group()

    # waiting

    def _require_usable(self) -> None:
        if self._closed:
            raise Closed("reader")
        if self._error is not None:
            raise self._error

    def _wait_until(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> GroupDelivery | None:
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while not interrupted():
            self._reach_checkpoint()
            generation = self._tail.generation()
            with self._lock:
                if self._closed:
                    return None
                self._require_usable()
                began_at = None if self._tracing is None else self._tracing.now()
                delivery = self._assigned.next(since_sync_s_max=2 * self._refresh_s)
                if delivery is not None:
                    self._progress.start(delivery)  # under the lock, or its segment might be released before
                    if self._tracing is not None and began_at is not None:
                        name, rows = str(delivery.view.info.name), delivery.rows.batch.num_rows
                        self._tracing.read(began_at, name, delivery.segment.segment, rows, group=self.group)
                    return delivery
                if self._assigned.finished():
                    return None
            remaining_s = self._refresh_s
            if deadline is not None:
                remaining_s = min(remaining_s, deadline - self._clock.monotonic())
                if remaining_s <= 0:
                    return None
            self._tail.wait(generation, remaining_s)
        return None

    def _reach_checkpoint(self) -> None:
        checkpoint = self._membership.awaited_checkpoint
        if checkpoint is None:
            return
        with self._lock:
            self._require_usable()
            self._assigned.finish_current()
        for callback in () if checkpoint.silent else self._on_checkpoint:
            callback(checkpoint.name)
        with self._lock:
            self._require_usable()
            self._assigned.sync_with_group(at_checkpoint=checkpoint.name)

    # the group

    def _heartbeat_round(self) -> None:
        """One round of the background task: heartbeat, segments, checkpoints."""
        try:
            with self._lock:
                if self._closed or self._error is not None:
                    self._heartbeats.stop()
                    return
                before = set(self._progress.segments)
                self._assigned.refresh_and_sync()
                changed = before != set(self._progress.segments)
            if changed or self._membership.awaited_checkpoint is not None:
                self._tail.notify()
        except (StoreUnavailable, AppendUncertain):
            raise  # the store may come back within the lease; else the reading call raises
        except AnabranchError as exc:
            self._error = exc
            if not isinstance(exc, Closed):
                READER_LOST(reader=self.name, group=self.group, error=exc)
            self._tail.notify()
            self._heartbeats.stop()

    # closing

    def _close(self, *, done: bool) -> None:
        try:
            with self._close_lock:
                if self._closing:
                    return
                if not self._closed:
                    self._finish_on_close = done
                self._closed = self._closing = True
            self._heartbeats.stop()
            self._bridge.close()
            self._tail.notify()
            self._close_all()
        except AnabranchError:
            raise
        except BaseException:
            self._closing = False
            raise

    def _close_all(self) -> None:
        try:
            with self._lock:
                if self._finish_on_close:
                    self._assigned.finish_current()
                self._assigned.close()
                if self._error is None:
                    self._leave()
                with suppress(StoreUnavailable, AppendUncertain):
                    self._output.end()
        except AnabranchError:
            self._finish_close()
            raise
        self._finish_close()

    def _finish_close(self) -> None:
        self._heartbeats.close()
        if self._on_close is not None:
            self._on_close(self)

    def _leave(self) -> None:
        with suppress(ReaderNotInGroup, GroupNotFound):
            try:
                self._assigned.leave()
            except (StoreUnavailable, AppendUncertain, Closed):  # unavailable, or closed by another thread
                return  # its lease will expire, if it has not left
