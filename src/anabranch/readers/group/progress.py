"""How far a group reader is: what it was given to read, what it handed out, and what the application is done with."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import repeat
from operator import length_hint
from typing import Literal, NamedTuple

from anabranch.model.event import Event, EventRun
from anabranch.model.position import StreamSegment
from anabranch.readers.group.intake import Delivery

DeliveryMode = Literal["at_least_once", "at_most_once", "exactly_once"]


class Hand(NamedTuple):
    """What is being handed out: events one by one, of which `left` counts those still to come, or (None) a whole batch."""

    delivery: Delivery
    left: Iterator[int] | None
    events: Iterator[Event]

    @property
    def reached(self) -> int:
        """Behind the last event that was handed out."""
        return self.delivery.rows.stop - (0 if self.left is None else length_hint(self.left))


class Progress:
    """Offsets in each segment that a reader has. An offset is handed out, then done with, then accepted by the group."""

    def __init__(self, mode: DeliveryMode) -> None:
        self.mode: DeliveryMode = mode
        self.hand: Hand | None = None
        self._handed: dict[StreamSegment, int] = {}  # behind what was handed out before the hand
        self._done: dict[StreamSegment, int] = {}  # behind what the application is done with

    @property
    def segments(self) -> Collection[StreamSegment]:
        """The segments that the reader has."""
        return self._done.keys()

    def begin(self, segment: StreamSegment, offset: int) -> None:
        """Have a segment, or go on elsewhere in it."""
        self._handed[segment] = self._done[segment] = offset

    def drop(self, segment: StreamSegment) -> None:
        """Have it no more."""
        del self._handed[segment], self._done[segment]

    def take(self, delivery: Delivery) -> None:
        """Rows are to be handed out, as events unless `take_whole` is called."""
        info, rows = delivery.view.info, delivery.rows
        run = EventRun(info.id, info.schema, delivery.segment.segment, rows.batch, rows.first, None, rows.appended)
        left = iter(range(rows.batch.num_rows))
        # `map` over C iterators makes an event in a tenth of a microsecond.
        self.hand = Hand(delivery, left, map(Event, repeat(run), left))

    def take_whole(self, delivery: Delivery) -> None:
        """They are handed out at once."""
        self.hand = Hand(delivery, None, iter(()))

    def put_down(self) -> tuple[StreamSegment, int] | None:
        """The application asks for more, so what it had in hand is done with. Returns where to read on if the rest of a
        batch was not handed out."""
        hand, self.hand = self.hand, None
        if hand is None or (segment := hand.delivery.segment) not in self._handed:
            return None
        self._handed[segment] = hand.reached
        if self.mode != "exactly_once":
            self._done[segment] = max(self._done[segment], hand.reached)
        return None if hand.reached == hand.delivery.rows.stop else (segment, hand.reached)

    def finish(self, positions: Mapping[StreamSegment, int]) -> None:
        """The application is done with everything up to there."""
        for segment, offset in positions.items():
            self._done[segment] = max(self._done[segment], offset)

    def finish_ahead(self, delivery: Delivery) -> None:
        """As `finish`, of rows that are still to be handed out."""
        self._handed[delivery.segment] = self._done[delivery.segment] = delivery.rows.stop

    def position(self) -> dict[StreamSegment, int]:
        """Behind what was handed out."""
        found = dict(self._handed)
        if self.hand is not None and self.hand.delivery.segment in found:
            found[self.hand.delivery.segment] = self.hand.reached
        return found

    def done_with(self) -> dict[StreamSegment, int]:
        """Behind what the application is certainly done with, as its mode has it."""
        done = dict(self._done)
        if self.mode == "at_least_once" and self.hand is not None and self.hand.left is not None:
            segment = self.hand.delivery.segment
            if segment in done:  # all but the event that was handed out last
                done[segment] = max(done[segment], self.hand.reached - 1)
        return done

    def kept(self) -> set[StreamSegment]:
        """The segments that can't be given up now: something of them is in hand, or handed out and not done with."""
        kept = {segment for segment, offset in self.position().items() if offset > self._done[segment]}
        if self.hand is not None:
            kept.add(self.hand.delivery.segment)
        return kept
