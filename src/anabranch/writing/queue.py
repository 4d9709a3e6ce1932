"""A writer's queue: holds its pending batches, has them routed, and follows each until it is appended or refused."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress

from anabranch import limits
from anabranch.errors import AnabranchError, AppendUncertain, Conflict, Fenced, StreamNotFound, StreamSealed
from anabranch.log.appender import Appender
from anabranch.log.commit import Outcome, Repeated, RoutedBatch
from anabranch.model.append import Appended, Refusal, Refused
from anabranch.model.producer import Place, ProducerSequence
from anabranch.runtime.ports import Runtime
from anabranch.writing.acknowledgement import Acknowledgement
from anabranch.writing.chunk_buffer import ChunkBuffer
from anabranch.writing.in_flight import InFlightBatch, first_refusal
from anabranch.writing.interruptions import as_append_error, may_be_interruption
from anabranch.writing.pending_batch import PendingBatch, join
from anabranch.writing.producer_claim import OpenedProducer
from anabranch.writing.progress import WriterProgress
from anabranch.writing.router import Router
from anabranch.writing.routes import RoutedRows

# Batches of one log in a commit. Commits are decided, and resolved if uncertain, one at a time. So the batches that a
# log remembers (limits.WRITER_BATCHES_KEPT) include each whose outcome may be looked up, however many are in flight.
_RUNS_PER_TAKE_MAX = 4
_JOIN_BYTES_MAX = 1 << 20  # pending batches are joined up to this size,
_JOIN_BYTES_PER_LOG = 1 << 17  # or this size per log: copying it costs less than one more batch
_MOVED = (Refusal.SEALED, Refusal.GONE)  # the events belong in another segment now
_MISNUMBERED = (Refusal.GAP, Refusal.UNKNOWN_WRITER)  # after a gap, these say only that it exists
_OUTSTANDING_MIN = 64  # drained acknowledgements are dropped at this many, or twice those that were left the last time


class WriterQueue:
    """The appender's source for one writer.

    It takes over closed chunks from `buffer`, and batches from the writer, and calls neither: outcomes go to the
    acknowledgements of the events.

    A barrier keeps the order: after a refusal nothing more is taken until everything in flight has been appended or
    returned; then the routes are reloaded and the returned batches go first.

    An exception may be thrown into any of its methods, between any two instructions. So each interrupted call can be
    repeated: `enqueue` and `abandon` by the writer, `take` after a `restore`, and the settling of a batch by the
    appender.
    """

    def __init__(
        self,
        appender: Appender,
        buffer: ChunkBuffer,
        router: Router,
        progress: WriterProgress,
        runtime: Runtime,
        *,
        fence: int | None,
        producer: OpenedProducer | None = None,
    ) -> None:
        self._producer = producer
        self.next_number = 0 if producer is None else producer.last + 1  # of a producer's next append
        self._runs_max = _RUNS_PER_TAKE_MAX if producer is None else limits.PRODUCER_ANSWERS_KEPT
        self._appender = appender
        self._buffer = buffer
        self._router = router
        self._progress = progress
        self._fence = fence
        self._lock = runtime.tasks.lock()
        self._waiting: deque[PendingBatch] = deque()
        self._returned: dict[int, PendingBatch] = {}  # to be routed again, by their former order
        self._in_flight: dict[int, InFlightBatch] = {}  # by their order: those that are not settled
        self._taken: list[PendingBatch] = []  # by the last `take`, until they are known to be in a commit
        self._order_before = 0  # batches routed by that `take` have a greater order
        self._last_order = 0
        self._outstanding: dict[Acknowledgement, None] = {}  # not a set, whose order would differ from run to run
        self._outstanding_max = _OUTSTANDING_MIN
        self._waiting_bytes = 0
        self._in_flight_bytes = 0
        self._routing = False  # a `take` is routing what it took
        self._barrier = False
        self._gap = False  # a refusal left a gap in the sequence numbers
        self.refusals = buffer.refusals
        self.fatal: AnabranchError | None = None  # set once no event can ever be appended

    # accepting

    def close_chunk(self) -> None:
        """Queue the events of the open chunk. Needs the buffer's lock. If interrupted, the next call continues with the
        same chunk. An exception thrown in from outside is raised once they are queued."""
        chunk = self._buffer.close()
        if chunk is None:
            return
        assert chunk.batches is not None, "it is closed"
        self.refusals.add_all(chunk.acknowledgement.errors)  # of rows that no column type accepts
        if self._producer is not None:
            if self.fatal is None:
                self.fatal = chunk.acknowledgement.error  # the events after a refused one must not get its number
            for pending in chunk.batches:
                pending.appends = pending.events.num_rows
        self.enqueue(chunk.batches, chunk.acknowledgement)
        self._buffer.queued()

    def enqueue(self, batches: Sequence[PendingBatch], acknowledgement: Acknowledgement) -> None:
        """Take over pending batches, and add their acknowledgement to those that `flush` waits for. The caller offers
        this source to the appender. May be repeated if interrupted."""
        with self._lock:
            if len(self._outstanding) >= self._outstanding_max:
                self._forget_drained()  # before this one is added: none of its events is accepted, so it is drained
            self._outstanding[acknowledgement] = None
            for pending in batches:
                repeated, pending.offered = pending.offered, True
                if self._producer is not None:
                    self._number(pending)
                if not repeated or not self._has(pending):
                    self._waiting.append(pending)
                    self._waiting_bytes += pending.size
                pending.queued = True
            for pending in batches:
                pending.mark_accepted()

    def _number(self, pending: PendingBatch) -> None:
        pending.atomic = True
        if pending.number is None:
            # Counted first: if this is interrupted in between, the next append is refused for the gap. The other way round
            # it would get the same numbers, and count as a repeat.
            self.next_number += pending.appends
            pending.number = self.next_number - pending.appends

    def abandon(self, batches: Iterable[PendingBatch], error: AnabranchError) -> None:
        """Refuse the pending batches that never entered the queue."""
        with self._lock:
            abandoned = [pending for pending in batches if not pending.offered or not self._has(pending)]
            for pending in abandoned:
                self._refuse(pending, error)
            for pending in abandoned:
                pending.mark_accepted()

    def _has(self, pending: PendingBatch) -> bool:
        """True if the batch is or was in the queue. Needs the lock."""
        return pending.queued or any(each is pending for each in self._waiting)

    def outstanding(self) -> list[Acknowledgement]:
        """The acknowledgements that are not drained."""
        with self._lock:
            self._forget_drained()
            return list(self._outstanding)

    def _forget_drained(self) -> None:
        self._outstanding = {each: None for each in self._outstanding if not each.drained}
        self._outstanding_max = max(_OUTSTANDING_MIN, 2 * len(self._outstanding))

    @property
    def pending_bytes(self) -> int:
        """See `AppendSource.pending_bytes`."""
        return self._waiting_bytes + self._buffer.bytes

    @property
    def unsettled_bytes(self) -> int:
        """Bytes that wait or are in flight."""
        return self._waiting_bytes + self._in_flight_bytes

    # the appender's side

    def take(self, bytes_max: int) -> list[RoutedBatch]:
        """See `AppendSource.take`."""
        # Under the buffer's lock, so that no batch that is written meanwhile overtakes the events of the chunk.
        with self._buffer.lock:
            self.close_chunk()
        try:
            return self._take_waiting(bytes_max)
        except Exception as exc:
            interruption = exc
        self.restore()
        try:
            routed = self._take_waiting(bytes_max)
        except Exception as exc:  # raised again: it was not thrown in from outside
            self.restore()
            with self._lock:
                self._refuse_waiting(as_append_error(exc))
            return []
        if may_be_interruption(interruption):
            raise interruption  # `restore` puts the batches back
        return routed

    def _take_waiting(self, bytes_max: int) -> list[RoutedBatch]:
        """Take batches of the queue, and route them."""
        with self._lock:
            self._taken, self._order_before = [], self._last_order
            if self._barrier:
                if self._in_flight:
                    return []
                self._put_returned_first()
                self._recover()
            if self.fatal is not None:
                self._refuse_waiting(self.fatal)
            self._routing = True  # so that the queue does not count as idle while batches are still being routed
            runs = self._take_runs(bytes_max)
        routed: list[RoutedBatch] = []
        for run in runs:
            routed += self._route(run)
        with self._lock:
            self._routing = False
            if not routed:
                self._taken = []
                self._continue_if_idle()
        return routed

    def restore(self) -> None:
        """See `AppendSource.restore`."""
        with self._lock:
            self._barrier = self._gap = True  # numbers were given to batches that are lost
            for order in [order for order in self._in_flight if order > self._order_before]:
                del self._in_flight[order]
            for pending in self._taken:
                if pending.refused is not None:
                    self._refuse(pending, pending.refused)
            self._put_first([pending for pending in self._taken if pending.refused is None])
            self._taken = []
            self._routing = False
            self._continue_if_idle()

    def _put_first(self, batches: Sequence[PendingBatch]) -> None:
        """Put batches that are not in the queue at its front. Needs the lock."""
        present = set(map(id, self._waiting))
        self._waiting = deque([*(pending for pending in batches if id(pending) not in present), *self._waiting])
        self._waiting_bytes = sum(pending.size for pending in self._waiting)

    def _take_runs(self, bytes_max: int) -> list[list[PendingBatch]]:
        """Take batches from the front, as runs: the batches of a run are joined into one. Needs the lock."""
        runs: list[list[PendingBatch]] = []
        left = bytes_max
        join_bytes_max = max(_JOIN_BYTES_MAX, _JOIN_BYTES_PER_LOG * len(self._router.routes.logs))
        schema_of = self._router.schema_of
        while self._waiting and left > 0:
            pending = self._waiting[0]
            if runs and pending.bytes_to_write > left:
                break
            if pending.expected is not None and (self._in_flight or runs):
                self._barrier = True  # a condition is tested with nothing else in flight
                break
            joins = runs and not pending.alone and not runs[-1][0].alone
            joins = joins and schema_of(runs[-1][0].events) is schema_of(pending.events)
            joins = joins and sum(each.size for each in runs[-1]) + pending.size <= join_bytes_max
            if not joins and len(runs) == self._runs_max:
                break
            self._taken.append(pending)
            pending.queued = True
            self._waiting.popleft()
            self._waiting_bytes -= pending.size
            self._in_flight_bytes += pending.size
            left -= pending.bytes_to_write
            if joins:
                runs[-1].append(pending)
            else:
                runs.append([pending])
            if pending.expected is not None:
                self._barrier = True
                break
        return runs

    def _route(self, run: list[PendingBatch]) -> list[InFlightBatch]:
        before = self._last_order
        try:
            return self._route_joined(join(run))
        except Exception as exc:
            if may_be_interruption(exc) and self._can_route(run):
                raise  # thrown in from outside: `restore` puts the batches back
            with self._lock:
                for order in range(before + 1, self._last_order + 1):
                    self._in_flight.pop(order, None)
                self._barrier = self._gap = True  # numbers may have been given to batches that are lost
                for pending in run:
                    self._refuse(pending, as_append_error(exc))
            return []

    def _can_route(self, run: list[PendingBatch]) -> bool:
        """True if these batches can be routed, so that an error while routing them wasn't caused by them."""
        try:
            self._router.split(join(run))
        except Exception:
            return False
        return True

    def _route_joined(self, pending: PendingBatch) -> list[InFlightBatch]:
        router, routed = self._router, []
        appends = tuple(origin.span for origin, _ in pending.origins if origin.span is not None)
        for rows in router.groups(pending):
            parts = tuple(router.part(pending, each) for each in rows)
            self._last_order += 1
            in_flight = InFlightBatch(
                parts,
                appends,
                pending=pending,
                rows=rows,
                routes=router.routes,
                order=self._last_order,
                report=self._settle,
                producer=self._sequence(pending, rows),
            )
            self._in_flight[self._last_order] = in_flight
            routed.append(in_flight)
        return routed

    def _sequence(self, pending: PendingBatch, rows: list[RoutedRows]) -> ProducerSequence | None:
        producer, number = self._producer, pending.number
        if producer is None:
            return None
        assert number is not None, "every append of a producer has a number"
        offsets = self._router.routes.offsets
        places = tuple(Place(each.segment, offsets[each.log]) for each in rows)
        last = number + pending.appends - 1
        return ProducerSequence(producer.stream, producer.name, producer.epoch, number, last, places)

    # outcomes

    def _settle(self, routed: InFlightBatch, outcome: Outcome) -> None:
        with self._lock:
            if routed.order > self._order_before:
                self._taken = []  # its commit is under way, so `restore` returns nothing of that `take`
            if routed.order in self._in_flight:
                self._report(routed, outcome)
                del self._in_flight[routed.order]
            self._continue_if_idle()

    def _report(self, routed: InFlightBatch, outcome: Outcome) -> None:
        if isinstance(outcome, Repeated):
            self._report_repeated(routed, outcome)
            return
        refused = None if isinstance(outcome, AnabranchError) else first_refusal(outcome)
        if isinstance(outcome, AnabranchError):
            if isinstance(outcome, AppendUncertain):
                self._progress.mark_uncertain(part.log for part in routed.parts)
            self._report_refusal(routed, outcome)
        elif refused is None:
            for number, (part, verdict) in enumerate(zip(routed.parts, outcome, strict=True)):
                assert isinstance(verdict, Appended)
                self._progress.record_append(part.log, part.first + part.batch.num_rows)
                routed.record_append(number, verdict)
                self._in_flight_bytes -= routed.size_of(routed.rows[number])
        elif refused.reason in _MOVED or (refused.reason in _MISNUMBERED and self._gap):
            self._barrier = True
            verdicts = zip(routed.parts, outcome, strict=True)
            self._router.refused_by(
                part.log for part, each in verdicts if isinstance(each, Refused) and each.reason in _MOVED
            )
            # Of several parts, those for segments that are still open have left a gap there.
            self._gap = self._gap or len(routed.parts) > 1 or routed.producer is not None
            if routed.order not in self._returned:
                self._returned[routed.order] = routed.to_route_again()
        else:
            if refused.reason in _MISNUMBERED:
                # Numbering then continues after the log's last number.
                self._progress.mark_uncertain(part.log for part in routed.parts)
            self._report_refusal(routed, self._error_for(routed, refused))

    def _error_for(self, routed: InFlightBatch, refused: Refused) -> AnabranchError:
        if routed.producer is not None and refused.reason is Refusal.UNKNOWN_WRITER:
            with suppress(AnabranchError):
                if self._progress.info() is None:  # producers go with their stream
                    return StreamNotFound(str(self._router.routes.info.name))
        return routed.error_for(refused, self._progress.writer, self._fence)

    def _report_repeated(self, routed: InFlightBatch, outcome: Repeated) -> None:
        assert routed.producer is not None
        if outcome.resolved or routed.pending.repeatable:
            routed.record_repeated(outcome.events)
            self._in_flight_bytes -= sum(map(routed.size_of, routed.rows))
            return
        self._report_refusal(
            routed,
            Conflict(
                f"number {routed.producer.first} of producer '{routed.producer.producer}' was used by another process; "
                "open the producer without an epoch, which takes it over"
            ),
        )

    def _report_refusal(self, routed: InFlightBatch, error: AnabranchError) -> None:
        if routed.producer is not None and self.fatal is None:
            self.fatal = error  # a later append must not take its number: it would count as a repeat of this one
        self._barrier = self._gap = True
        self.refusals.add(error)  # first: `flush` reads it as soon as the acknowledgements are done
        routed.record_refusal(error)

    def _refuse(self, pending: PendingBatch, error: AnabranchError) -> None:
        if self._producer is not None and self.fatal is None:
            self.fatal = error  # as in `_report_refusal`
        self.refusals.add(error)  # first, as in `_report_refusal`
        pending.refuse(error)

    def _continue_if_idle(self) -> None:
        """Once nothing is in flight, put returned batches first, and have the appender take again. Needs the lock."""
        if self._in_flight or self._routing:
            return
        self._in_flight_bytes = 0
        self._put_returned_first()
        if self._waiting or self._buffer.bytes:
            self._appender.requeue(self)

    def _put_returned_first(self) -> None:
        """Put returned batches at the front of the queue. Needs the lock."""
        if self._returned:
            self._put_first([pending for _, pending in sorted(self._returned.items())])
            self._returned.clear()

    # recovery

    def _recover(self) -> None:
        """Reload the routes, with nothing in flight, and continue numbering after the appended events. Needs the lock."""
        interruption: Exception | None = None
        try:
            try:
                self._router.reload()
            except Exception as exc:
                if not may_be_interruption(exc):
                    raise
                interruption = exc  # it was thrown in from outside, unless it is raised again
                traceback.clear_frames(exc.__traceback__)  # which may hold a statement of the catalog open
                self._router.reload()
        except StreamNotFound:
            self.fatal = StreamNotFound(str(self._router.routes.info.name))
        except (StreamSealed, Fenced, Conflict) as exc:
            self.fatal = exc
        except Exception as exc:
            self._refuse_waiting(as_append_error(exc))
            return
        self._barrier = self._gap = False
        if self.fatal is not None:
            self._refuse_waiting(self.fatal)
        if interruption is not None:
            raise interruption

    def _refuse_waiting(self, error: AnabranchError) -> None:
        while self._waiting:
            self._refuse(self._waiting[0], error)
            self._waiting.popleft()
        self._waiting_bytes = 0
