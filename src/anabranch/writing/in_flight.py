"""A writer's routed batches while a commit has them, and how their outcomes are reported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.errors import (
    AnabranchError,
    ConditionFailed,
    Conflict,
    Fenced,
    OutOfSequence,
    WriterUnknown,
)
from anabranch.log.commit import Outcome, RoutedBatch, WriterHandle
from anabranch.model.append import Appended, Refusal, Refused
from anabranch.model.ids import SegmentId
from anabranch.model.producer import PlacedEvents, ProducerSequence
from anabranch.writing.acknowledgement import EventRange
from anabranch.writing.pending_batch import PendingBatch
from anabranch.writing.routes import RoutedRows, Routes


@dataclass(slots=True, eq=False, kw_only=True)
class InFlightBatch(RoutedBatch):
    """A routed batch that came from a writer's queue: from `pending`, by `routes`. `rows` says of each part which
    events of the pending batch it holds. `order` rises from batch to batch. `report` is called with the outcome."""

    pending: PendingBatch
    rows: list[RoutedRows]
    routes: Routes
    order: int
    report: Callable[[InFlightBatch, Outcome], None]

    def settle(self, outcome: Outcome) -> None:
        """See `RoutedBatch.settle`."""
        self.report(self, outcome)

    def size_of(self, rows: RoutedRows) -> int:
        """The share of some rows in the size of the pending batch."""
        return int(self.pending.size * rows.batch.num_rows // max(1, self.pending.events.num_rows))

    def record_append(self, number: int, verdict: Appended) -> None:
        """Report to the acknowledgements where the events of part `number` were appended. May be repeated."""
        rows = self.rows[number]
        self._record_start(number, rows, verdict.start + self.routes.offsets[rows.log])

    def _record_start(self, number: int, rows: RoutedRows, start: int) -> None:
        for acknowledgement, numbers, position in self.pending.origins_of(rows.rows):
            key = self.order, number, position
            acknowledgement.record_append(rows.segment, start + position, numbers, key=key)

    def record_repeated(self, events: tuple[PlacedEvents, ...] | None) -> None:
        """Report to the acknowledgements that a numbered batch had been appended before, and where. May be repeated."""
        if events is not None and [(rows.segment.packed, rows.batch.num_rows) for rows in self.rows] == [
            (each.segment, each.length) for each in events
        ]:
            # Split as it was then, so the rows are in the same order.
            for acknowledgement, _ in self.pending.origins:
                acknowledgement.note_repeated()
            for number, (rows, each) in enumerate(zip(self.rows, events, strict=True)):
                self._record_start(number, rows, each.start)
            return
        ranges = tuple(
            EventRange(SegmentId.unpack(each.segment), each.start, each.start + each.length) for each in events or ()
        )
        for acknowledgement, numbers in self.pending.origins:
            acknowledgement.record_repeated(ranges, len(numbers), key=(self.order,))

    def record_refusal(self, error: AnabranchError) -> None:
        """Report to the acknowledgements that all events were refused. May be repeated."""
        for number, rows in enumerate(self.rows):
            for acknowledgement, numbers, position in self.pending.origins_of(rows.rows):
                acknowledgement.record_refusal(error, numbers, key=(self.order, number, position))

    def to_route_again(self) -> PendingBatch:
        """The pending batch that goes back into the queue if this one was refused because segments changed."""
        if self.pending.alone or len(self.rows) > 1:
            return self.pending
        (rows,) = self.rows
        origins = [(acknowledgement, numbers) for acknowledgement, numbers, _ in self.pending.origins_of(rows.rows)]
        points = None if self.pending.points is None else self.pending.points.select(rows.rows)
        return PendingBatch(rows.batch, origins, points)

    def error_for(self, refused: Refused, writer: WriterHandle, fence: int | None) -> AnabranchError:
        """The error that reports a refusal. `fence`: the writer's own, if it was opened with one."""
        if self.producer is not None and (error := _numbers_error(self.producer, refused)) is not None:
            return error
        match refused.reason:
            case Refusal.FENCED:
                carried = max((writer.fences.get(part.log, 0) for part in self.parts), default=0)
                return Fenced(carried if fence is None else fence, refused.actual)
            case Refusal.GAP:
                return OutOfSequence(refused.actual, self.parts[0].first)
            case Refusal.UNKNOWN_WRITER:
                return WriterUnknown(writer.id, self.parts[0].first)
            case Refusal.CONDITION:
                assert self.pending.expected is not None
                actual = refused.actual + self.routes.offsets[self.parts[0].log]
                return ConditionFailed(self.pending.expected, actual)
            case _:
                return Conflict(f"the append was refused repeatedly: {refused.reason.value}")


def _numbers_error(carried: ProducerSequence, refused: Refused) -> AnabranchError | None:
    match refused.reason:
        case Refusal.FENCED if refused.actual > carried.epoch:
            return Fenced(carried.epoch, refused.actual)
        case Refusal.GAP:
            return OutOfSequence(refused.actual, carried.first)
        case Refusal.UNKNOWN_WRITER:
            return WriterUnknown(carried.producer, carried.first)
    return None


def first_refusal(outcome: tuple[Appended | Refused, ...]) -> Refused | None:
    """The refusal that gives the cause; None if everything was appended."""
    refusals = [verdict for verdict in outcome if isinstance(verdict, Refused)]
    return next((each for each in refusals if each.reason is not Refusal.UNIT), refusals[0] if refusals else None)
