"""The progress of a group reader: what it handed out, and what the application has processed."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from itertools import repeat
from operator import length_hint
from typing import Literal, NamedTuple

from anabranch.groups.cursor import GroupDelivery
from anabranch.model.event import Event, EventRun
from anabranch.model.position import StreamSegment

DeliveryMode = Literal["at_least_once", "at_most_once", "exactly_once"]


class CurrentBatch(NamedTuple):
    """A batch that is being handed out: event by event, where `remaining` iterates over the rows still to come, or as a
    whole (None)."""

    delivery: GroupDelivery
    remaining: Iterator[int] | None
    events: Iterator[Event]

    @property
    def next_offset(self) -> int:
        """The offset after the last event that was handed out."""
        return self.delivery.rows.stop - (0 if self.remaining is None else length_hint(self.remaining))

    @property
    def handed_out(self) -> int:
        """The number of its events that were handed out."""
        rows: int = self.delivery.rows.batch.num_rows
        return rows - (0 if self.remaining is None else length_hint(self.remaining))


class GroupReaderProgress:
    """Offsets in each segment that a reader has: handed out, then processed, then accepted by the group."""

    def __init__(self, mode: DeliveryMode) -> None:
        self.mode: DeliveryMode = mode
        self.current: CurrentBatch | None = None
        self._handed_out_before = 0  # events handed out before `current`
        self._handed_out_offsets: dict[StreamSegment, int] = {}  # as of before `current`
        self._processed: dict[StreamSegment, int] = {}  # the offset after what the application has processed

    @property
    def segments(self) -> Collection[StreamSegment]:
        """The segments that the reader has."""
        return self._processed.keys()

    @property
    def handed_out(self) -> int:
        """The number of events handed out since the reader was opened. Only handing out changes it, whatever segments
        are added and removed."""
        return self._handed_out_before + (0 if self.current is None else self.current.handed_out)

    def seek(self, segment: StreamSegment, offset: int) -> None:
        """Add a segment, or move to another offset in it."""
        self._handed_out_offsets[segment] = self._processed[segment] = offset

    def resume(self, segment: StreamSegment, *, handed_out: int, processed: int) -> None:
        """Continue a segment after what another object handed out to the same consumer."""
        self._handed_out_offsets[segment], self._processed[segment] = handed_out, processed

    def remove(self, segment: StreamSegment) -> None:
        """Remove a segment."""
        del self._handed_out_offsets[segment], self._processed[segment]

    def start(self, delivery: GroupDelivery) -> None:
        """Set the batch to hand out: event by event, unless `hand_out_whole` is called."""
        info, rows = delivery.view.info, delivery.rows
        run = EventRun(info.id, info.schema, delivery.segment.segment, rows.batch, rows.first, None, rows.appended)
        remaining = iter(range(rows.batch.num_rows))
        # `map` over C iterators makes an event in a tenth of a microsecond.
        self.current = CurrentBatch(delivery, remaining, map(Event, repeat(run), remaining))

    def hand_out_whole(self, delivery: GroupDelivery) -> None:
        """Mark all rows of the batch as handed out."""
        self.current = CurrentBatch(delivery, None, iter(()))

    def resume_point(self) -> tuple[StreamSegment, int] | None:
        """Where to continue reading if only a part of the current batch was handed out, else None."""
        current = self.current
        if (
            current is None
            or current.delivery.segment not in self._handed_out_offsets
            or current.next_offset == current.delivery.rows.stop
        ):
            return None
        return current.delivery.segment, current.next_offset

    def finish_current(self) -> None:
        """Mark the handed-out events of the current batch as processed, because the application requests more. May be
        repeated if interrupted."""
        current = self.current
        if current is None:
            return
        count = self._handed_out_before + current.handed_out
        if (segment := current.delivery.segment) in self._handed_out_offsets:
            self._handed_out_offsets[segment] = current.next_offset
            if self.mode != "exactly_once":
                self._processed[segment] = max(self._processed[segment], current.next_offset)
        # No call in between, so no exception from outside can make the events handed out count twice.
        self._handed_out_before, self.current = count, None
        if current.remaining is not None:
            deque(current.remaining, maxlen=0)  # an earlier iteration still holds them, and they are read again

    def mark_processed(self, positions: Mapping[StreamSegment, int]) -> None:
        """Mark everything up to these positions as processed, in the segments that the reader has."""
        for segment, offset in positions.items():
            if segment in self._processed:  # else it was removed meanwhile, because its events were truncated
                self._processed[segment] = max(self._processed[segment], offset)

    def mark_processed_ahead(self, delivery: GroupDelivery) -> None:
        """Like `mark_processed`, for rows that are still to be handed out."""
        self._processed[delivery.segment] = delivery.rows.stop

    def position(self) -> dict[StreamSegment, int]:
        """The offsets after what was handed out."""
        offsets = dict(self._handed_out_offsets)
        if self.current is not None and self.current.delivery.segment in offsets:
            offsets[self.current.delivery.segment] = self.current.next_offset
        return offsets

    def processed(self) -> dict[StreamSegment, int]:
        """The offsets after what the application has certainly processed, according to the delivery mode."""
        done = dict(self._processed)
        if self.mode == "at_least_once" and self.current is not None and self.current.remaining is not None:
            segment = self.current.delivery.segment
            if segment in done:  # all but the event that was handed out last
                done[segment] = max(done[segment], self.current.next_offset - 1)
        return done

    def in_use(self) -> set[StreamSegment]:
        """The segments that can't be released now. Such a segment is that of the current batch, or has events that were
        handed out but not processed, or that were marked as processed but not handed out."""
        in_use = {segment for segment, offset in self.position().items() if offset != self._processed[segment]}
        if self.current is not None:
            in_use.add(self.current.delivery.segment)
        return in_use
