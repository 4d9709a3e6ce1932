"""One DoPut of a remote writer: sends batches, and takes their answers in a task of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import flight

from anabranch import limits
from anabranch.errors import AnabranchError, AppendUncertain, StoreUnavailable
from anabranch.model.ids import SegmentId
from anabranch.remote.connection import Connection
from anabranch.runtime.ports import Runtime
from anabranch.wire.commands import parse
from anabranch.wire.flight_errors import error_of_text, from_flight
from anabranch.wire.v1 import anabranch_pb2 as v1
from anabranch.writing.acknowledgement import Acknowledgement, Rows


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch in flight to a broker. `rows` are the row numbers of its events in the acknowledgement, which is None for
    a message without events. `sequence` is set when the batch is first sent."""

    batch: pa.RecordBatch
    acknowledgement: Acknowledgement | None
    rows: Rows
    metadata: v1.AppendMetadata
    size: int
    numbered: bool = True
    sequence: int = -1

    def settle(self, answer: v1.AppendAnswer) -> None:
        """Report where its events landed."""
        acknowledgement = self.acknowledgement
        if acknowledgement is None:
            return
        if self.metadata.HasField("note_time_us"):
            acknowledgement.total = 0  # done
            return
        kept = self.rows
        if answer.weight:
            kept = self.rows[np.frombuffer(answer.kept_rows, "<u4")]
        if sum(each.count for each in answer.ranges) != len(kept):
            raise AppendUncertain("the events were appended before, too long ago for the broker to know where")
        if len(kept) < len(self.rows):
            acknowledgement.record_left_out(np.setdiff1d(self.rows, kept), key=int(self.rows[0]))
        of_row = np.frombuffer(answer.range_of_row, "<u2")
        acknowledgement.unplaced = acknowledgement.unplaced or (len(answer.ranges) > 1 and not len(of_row))
        begin = 0
        for number, landed in enumerate(answer.ranges):
            if len(of_row):
                rows = kept[of_row == number]
            else:
                rows = kept[begin : begin + landed.count]
                begin += landed.count
            acknowledgement.record_append(
                SegmentId.unpack(landed.segment), landed.start, rows, key=(int(self.rows[0]), number)
            )


class AppendCall:
    """`unanswered` are the batches that were sent, oldest first. The caller's `changed` is notified of every answer, and
    guards all state."""

    def __init__(
        self,
        connection: Connection,
        runtime: Runtime,
        command: v1.AppendCommand,
        columns: pa.Schema,
        changed: Any,
        settled: Callable[[SentBatch, v1.AppendAnswer], None],
    ) -> None:
        """Open the call. Raises StoreUnavailable where no broker answers, and the error with which the broker refuses
        the call."""
        self.columns = columns
        self.generation = connection.generation
        self.unanswered: deque[SentBatch] = deque()
        self.unanswered_bytes = 0
        self.ended = False  # the broker sends no more answers
        self.refused: SentBatch | None = None  # nothing after it was appended
        self.ending = False  # the broker wants the remaining batches sent to another broker
        self._changed = changed
        self._settled = settled
        self._in_sequence = command.HasField("producer") or command.HasField("byte_fence")
        self._writer, self._reader = connection.channel.put(command, columns)
        try:
            message = self._reader.read()
        except Exception as exc:
            raise from_flight(exc) from None
        if message is None:
            raise self._failure()
        self.opened = parse(v1.AppendOpened, message.to_pybytes())
        if self.opened.error:
            self.end()
            raise error_of_text(self.opened.error)
        self._task = runtime.tasks.spawn("remote-append", self._receive)

    def send(self, sent: SentBatch) -> None:
        """Send a batch, which is then unanswered. Raises StoreUnavailable."""
        with self._changed:
            self.unanswered.append(sent)
            self.unanswered_bytes += sent.size
        sent.metadata.sequence = sent.sequence
        try:
            self._writer.write_with_metadata(sent.batch, sent.metadata.SerializeToString())
        except Exception as exc:
            error = from_flight(exc)
            if type(error) is AnabranchError:  # the broker itself failed, and may have appended earlier batches
                raise StoreUnavailable(str(error)) from None
            raise error from None

    def end(self) -> None:
        """Stop sending, and take the remaining answers."""
        with suppress(pa.ArrowException, flight.FlightError, OSError):
            self._writer.done_writing()
        if hasattr(self, "_task"):
            self._task.join(limits.TASK_END_S)
        with suppress(pa.ArrowException, flight.FlightError, OSError):
            self._writer.close()

    def _failure(self) -> Exception:
        try:
            self._writer.close()
        except Exception as exc:
            return from_flight(exc)
        return StoreUnavailable("the broker has ended the call")

    def _receive(self) -> None:
        try:
            while not self.ended and (answer := self._next_answer()) is not None:
                with self._changed:
                    self._take(answer)
                    self._changed.notify_all()
        finally:  # whatever ended it: the sending task and the writers wait for this
            with self._changed:
                self.ended = True
                self._changed.notify_all()

    def _next_answer(self) -> v1.AppendAnswer | None:
        """The next answer; None at the end."""
        try:
            message = self._reader.read()
            return None if message is None else parse(v1.AppendAnswer, message.to_pybytes())
        except (pa.ArrowException, flight.FlightError, OSError, AnabranchError):
            return None

    def _take(self, answer: v1.AppendAnswer) -> None:
        if answer.ending:
            self.ending = True
        elif self.unanswered and self.unanswered[0].sequence == answer.sequence:
            if answer.error and isinstance(error_of_text(answer.error), StoreUnavailable | AppendUncertain):
                self.ended = True  # asked again, by the same number
                return
            sent = self.unanswered.popleft()
            self.unanswered_bytes -= sent.size
            self._settled(sent, answer)
            if answer.error and self._in_sequence:
                self.refused, self.ended = sent, True
        else:
            self.ended = True
