"""The batches that a remote writer has accepted: sent in order, and again after a lost connection, until a broker has
answered them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    Closed,
    Conflict,
    Fenced,
    StoreUnavailable,
    StreamNotFound,
    StreamSealed,
    Unauthenticated,
)
from anabranch.remote.append_call import AppendCall, SentBatch
from anabranch.remote.connection import Connection, broker_retries
from anabranch.runtime.ports import Runtime
from anabranch.wire.flight_errors import error_of_text
from anabranch.wire.v1 import anabranch_pb2 as v1
from anabranch.writing.interruptions import as_append_error
from anabranch.writing.refusals import Refusals

_ENDED: Final = (StreamSealed, StreamNotFound)
_LASTING: Final = (*_ENDED, Conflict, Fenced, Unauthenticated)


class AppendQueue:
    """Batches of one writer, and the task that sends them. With a producer in the command, or a claim of a byte stream,
    each batch is appended once. Without both, a batch whose answer is lost is refused with AppendUncertain.

    With `each_numbered` the number of a refused batch is not given to another batch, so nothing is appended after it.

    The writer sets three functions: `gathered` returns how many bytes of single events are gathered, `close_chunk` puts
    these events into the queue, and `explained` translates the error of a failed call for this writer."""

    def __init__(
        self,
        connection: Connection,
        runtime: Runtime,
        command: v1.AppendCommand,
        refusals: Refusals,
        *,
        named: bool,
        each_numbered: bool = False,
    ) -> None:
        self.changed = runtime.tasks.condition()
        self.fatal: AnabranchError | None = None
        self.gathered: Callable[[], int] = lambda: 0  # bytes of the open chunk
        self.close_chunk: Callable[[], None] = lambda: None
        self.explained: Callable[[AnabranchError], AnabranchError] = lambda error: error
        self._connection = connection
        self._runtime = runtime
        self._command = command
        self._producing = command.HasField("producer")
        self._repeatable = self._producing or command.HasField("byte_fence")
        self._forget = self._producing and not named
        self._each_numbered = each_numbered
        self._refusals = refusals
        self._waiting: deque[SentBatch] = deque()
        self._bytes = 0  # accepted and not answered
        self._unanswered: deque[SentBatch] = deque()  # of the last call
        self._next = 0
        self._answered = 0
        self._call: AppendCall | None = None
        self._closing = False
        self._task = runtime.tasks.spawn("remote-writer", self._run)

    def claim(self, columns: pa.Schema) -> None:
        """Take over the producer's name: its earlier owners are refused from now on. Raises the error with which a
        broker refuses the claim; StoreUnavailable."""
        self._connection.retried(lambda: self._claim(columns))

    def _claim(self, columns: pa.Schema) -> None:
        call = AppendCall(self._connection, self._runtime, self._command, columns, self.changed, self._settled)
        try:
            with self.changed:
                self._adopt(call)
        finally:
            call.end()

    @property
    def next_number(self) -> int:
        """The number of the next batch that is added."""
        with self.changed:
            return self._next + sum(sent.numbered for sent in self._waiting if sent.sequence < 0)

    # the writing threads

    def add(self, batches: list[SentBatch]) -> None:
        """Queue batches, under the buffer's lock."""
        with self.changed:
            for sent in batches:
                if self.fatal is not None:
                    self._refuse(sent, self.fatal)
                    continue
                self._waiting.append(sent)
                self._bytes += sent.size
            self.changed.notify_all()

    def wake(self) -> None:
        """Tell the task that events are gathered."""
        with self.changed:
            self.changed.notify_all()

    def wait_for_room(self) -> None:
        """Return once less than `limits.REMOTE_WRITER_BYTES_MAX` is unanswered."""
        with self.changed:
            while self._bytes > limits.REMOTE_WRITER_BYTES_MAX and self.fatal is None:
                self.changed.wait()

    def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait for an acknowledgement; see `Waiter`."""
        clock = self._runtime.clock
        until = None if timeout_s is None else clock.monotonic() + timeout_s
        with self.changed:
            while not done():
                left = None if until is None else until - clock.monotonic()
                if left is not None and left <= 0:
                    return False
                self.changed.wait(left)
        return True

    def wait_drained(self) -> None:
        """Return once everything that was queued is answered."""
        with self.changed:
            while self._waiting or self._unanswered or (self._call is not None and self._call.unanswered):
                self.changed.wait()

    def close(self) -> None:
        """End the task. Everything is answered."""
        with self.changed:
            self._closing = True
            self.changed.notify_all()
        self._task.join(limits.TASK_END_S)

    # the sending task

    def _run(self) -> None:
        retries = broker_retries(self._runtime)
        while True:
            with self.changed:
                while not self._anything() and not self._closing:
                    self.changed.wait()
                if not self._anything():
                    return
            generation = self._connection.generation
            answered = self._answered
            try:
                self._send_all()
                if self.fatal is not None:
                    self._give_up(self.fatal)
                retries = broker_retries(self._runtime)
                continue
            except Exception as exc:
                error = as_append_error(exc)
            error = self.explained(error)
            self._take_back()
            if isinstance(error, (Closed, *_LASTING)) or not isinstance(error, StoreUnavailable):
                self._give_up(error)
                continue
            self._connection.lost(error, generation)
            if answered != self._answered:
                retries = broker_retries(self._runtime)
            if not retries.again(error):
                self._give_up(error)
                retries = broker_retries(self._runtime)

    def _anything(self) -> bool:
        return bool(self._waiting or self._unanswered or self.gathered())

    def _send_all(self) -> None:
        """Send over one call until nothing is left. Raises StoreUnavailable where the call failed."""
        with self.changed:
            first = self._unanswered[0] if self._unanswered else self._waiting[0] if self._waiting else None
        if first is None:
            self.close_chunk()
            with self.changed:
                if not self._waiting:
                    return
                first = self._waiting[0]
        call = AppendCall(
            self._connection, self._runtime, self._command, first.batch.schema, self.changed, self._settled
        )
        try:
            self._opened(call)
            while (sent := self._due(call)) is not None:
                call.send(sent)
        finally:
            if self._forget and self._closing and not call.ended and not call.unanswered:
                self._send_forget(call)
            call.end()
            with self.changed:
                self._call = None
                self._unanswered.extendleft(reversed(call.unanswered))
                if call.refused is not None:
                    self._number_anew(call.refused)
                self.changed.notify_all()
        if call.ending:
            self._connection.lost(StoreUnavailable("the broker is about to end"), call.generation)

    def _opened(self, call: AppendCall) -> None:
        with self.changed:
            self._adopt(call)
            self._waiting.extendleft(reversed(self._unanswered))
            self._unanswered.clear()
            self._call = call

    def _adopt(self, call: AppendCall) -> None:
        """Continue in the epoch with which the producer was opened, after the last number of that epoch."""
        if self._producing and not self._command.HasField("epoch"):
            self._command.epoch = call.opened.epoch
            self._next = call.opened.last_sequence + 1

    def _due(self, call: AppendCall) -> SentBatch | None:
        """The next batch to send, once the window allows it; None if this call is over."""
        while True:
            with self.changed:
                while True:
                    if call.refused is not None:
                        return None
                    if call.ended and (call.unanswered or self._anything()):
                        raise StoreUnavailable("the connection to the broker was lost")
                    if call.ending and not call.unanswered:
                        return None
                    if not call.ending and self._may_send(call):
                        break
                    if self._closing and not self._anything() and not call.unanswered:
                        return None
                    self.changed.wait()
                if self._waiting:
                    if self._waiting[0].batch.schema != call.columns:
                        if not call.unanswered:
                            return None
                        self.changed.wait()
                        continue
                    return self._numbered(self._waiting.popleft())
            self.close_chunk()  # takes the buffer's lock, which comes before `changed`

    def _may_send(self, call: AppendCall) -> bool:
        """True if something is to be sent now. While two batches are in flight, a small chunk waits for an answer, so
        that more events gather in it."""
        count = len(call.unanswered)
        if count >= limits.CONNECTION_BATCHES_MAX or call.unanswered_bytes > limits.REMOTE_WINDOW_BYTES_MAX:
            return False
        if self._waiting:
            return True
        gathered = self.gathered()
        return gathered > 0 and (count < 2 or gathered >= limits.REMOTE_CHUNK_BYTES)

    def _number_anew(self, refused: SentBatch) -> None:
        """Renumber the batches after a refused one. Nothing after that batch was appended, so its number is free."""
        self._next = refused.sequence
        for sent in (*self._unanswered, *self._waiting):
            sent.sequence = -1

    def _numbered(self, sent: SentBatch) -> SentBatch:
        if sent.sequence < 0:
            sent.sequence = self._next
            self._next += sent.numbered
        return sent

    def _send_forget(self, call: AppendCall) -> None:
        empty = pa.RecordBatch.from_pylist([], schema=call.columns)
        metadata = v1.AppendMetadata(forget=True)
        with suppress(AnabranchError):
            call.send(SentBatch(empty, None, np.zeros(0, np.intp), metadata, 0, numbered=False, sequence=self._next))

    # outcomes; `changed` is held

    def _settled(self, sent: SentBatch, answer: v1.AppendAnswer) -> None:
        self._bytes -= sent.size
        self._answered += 1
        error = error_of_text(answer.error) if answer.error else None
        if error is None:
            try:
                sent.settle(answer)
                return
            except AppendUncertain as exc:
                error = exc
        error = as_append_error(error)
        if self.fatal is None and (self._each_numbered or isinstance(error, _ENDED)):
            self.fatal = error
        self._refuse(sent, error)

    def _refuse(self, sent: SentBatch, error: AnabranchError) -> None:
        if not sent.metadata.HasField("note_time_us"):
            self._refusals.add(error)
        if sent.acknowledgement is not None:
            sent.acknowledgement.record_refusal(error, sent.rows, key=int(sent.rows[0]))

    def _take_back(self) -> None:
        """After a failed call, keep the unanswered batches to be sent again; refuse them where sending them again could
        append them twice."""
        with self.changed:
            if not self._repeatable:
                uncertain = AppendUncertain("the connection to the broker was lost before the append was answered")
                while self._unanswered:
                    sent = self._unanswered.popleft()
                    self._bytes -= sent.size
                    self._refuse(sent, uncertain)
                self.changed.notify_all()

    def _give_up(self, error: AnabranchError) -> None:
        with self.changed:
            if isinstance(error, _LASTING):
                self.fatal = error
            unknown = error
            if isinstance(error, StoreUnavailable):
                unknown = AppendUncertain(f"no broker answered, so the outcome is unknown: {error}")
            for sent in self._unanswered:
                self._refuse(sent, unknown)
            self._unanswered.clear()
        self.close_chunk()
        with self.changed:
            for sent in self._waiting:
                self._refuse(sent, error if sent.sequence < 0 else unknown)
            self._waiting.clear()
            self._bytes = 0
            self.changed.notify_all()
