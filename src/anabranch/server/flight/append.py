"""DoPut: appends the batches of one client, and answers each once it is durable."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from anabranch import limits
from anabranch.core.byte_stream import reject_byte_stream
from anabranch.core.codec import check_values
from anabranch.errors import AnabranchError, AppendRefused, InvalidArgument, TooLarge
from anabranch.model.ids import Micros
from anabranch.model.stream import StreamInfo
from anabranch.runtime.log_events import FLIGHT_FAILED
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.calls import allowed_stream
from anabranch.server.flight.appended_rows import AppendedRows, appended_rows, repeated_rows
from anabranch.server.flight.byte_appends import ByteTarget
from anabranch.server.load.stream_loads import Sampled, number_label, sample_of_repeat
from anabranch.server.rights import StreamRight
from anabranch.wire.commands import named_stream, parse
from anabranch.wire.flight_errors import error_text
from anabranch.wire.v1 import anabranch_pb2 as v1
from anabranch.writing.producer import ProducerAck


class _WriterTarget:
    """Appends without a producer: at least once if the client repeats unanswered batches. `append` of each target
    accepts a batch and returns a function, which waits until the batch is durable, or raises the error that refused
    it."""

    def __init__(self, broker: Broker, info: StreamInfo, command: v1.AppendCommand) -> None:
        self._loads = broker.loads
        fence = command.fence if command.HasField("fence") else None
        reject_byte_stream(info)
        self._writer = broker.store._writer(info.id, name=str(info.name), fence=fence)
        self.epoch, self.last_sequence = 0, -1

    def append(self, batch: pa.RecordBatch, metadata: v1.AppendMetadata) -> Callable[[], AppendedRows]:
        if metadata.HasField("note_time_us"):
            self._writer.note_time(metadata.note_time_us)
        expected = metadata.expected if metadata.HasField("expected") else None
        kept, sampled = self._loads.thin(self._writer.stream_id, batch)
        if sampled is not None and not kept.num_rows:
            return lambda: AppendedRows([], sampled=sampled)
        accepted = self._writer.write_batch(kept, atomic=metadata.atomic, expected=expected)
        return lambda: appended_rows(accepted.landings())._replace(sampled=sampled)

    def close(self) -> None:
        self._writer.close()


class _ProducerTarget:
    """Appends by a producer: each sequence number takes effect once, even if another client repeats it."""

    def __init__(self, broker: Broker, info: StreamInfo, command: v1.AppendCommand) -> None:
        if command.HasField("fence"):
            raise InvalidArgument("a producer is guarded by its epoch, not by a fence")
        self._loads = broker.loads
        epoch = command.epoch if command.HasField("epoch") else None
        self._store = broker.store
        self._producer = broker.store.producers.open(info.id, command.producer, epoch=epoch)
        self.epoch, self.last_sequence = self._producer.epoch, self._producer.last_sequence

    def append(self, batch: pa.RecordBatch, metadata: v1.AppendMetadata) -> Callable[[], AppendedRows]:
        if metadata.HasField("expected"):
            raise InvalidArgument("a producer's append has no condition on the length")
        if metadata.HasField("note_time_us"):
            self._store.watermarks.note(self._producer.stream_id, self._producer.name, Micros(metadata.note_time_us))
            return lambda: AppendedRows([])
        if metadata.forget:
            name = self._store.streams.get(self._producer.stream_id).name
            self._store.producers.drop(name, self._producer.name)
            return lambda: AppendedRows([])
        label = number_label(self._producer.name, self.epoch, metadata.sequence)
        kept, sampled = self._loads.thin(self._producer.stream_id, batch, number=label)
        accepted = self._producer.append(kept, sequence=metadata.sequence)
        return lambda: self._outcome(accepted, batch, label, sampled)

    def _outcome(
        self, accepted: ProducerAck, batch: pa.RecordBatch, label: str, sampled: Sampled | None
    ) -> AppendedRows:
        """Wait for the outcome of appending `batch`. `label` identifies the append, from which its sample is drawn."""
        result = accepted.result()
        if result.duplicate:
            sampled = sample_of_repeat(batch.num_rows, result.events or 0, label)
        ranges = [(each.segment, each.start, each.stop - each.start) for each in result.ranges]
        runs = accepted.landings()
        if not runs and sampled is None and len(ranges) > 1:
            with self._store.catalog.reading() as reading:
                view = reading.view(result.stream)
            runs = [] if view is None else repeated_rows(view, batch, ranges)
        if runs:
            return appended_rows(runs)._replace(duplicate=result.duplicate, sampled=sampled)
        return AppendedRows(ranges, b"", result.duplicate, sampled)

    def close(self) -> None:
        self._producer.close()


_Target: TypeAlias = _WriterTarget | _ProducerTarget | ByteTarget


class _Waiting(NamedTuple):
    sequence: int
    size: int
    outcome: Callable[[], AppendedRows]


class _Answers:
    """The batches that are not durable yet, and the task that answers them in order. `in_sequence`: nothing is appended
    after a refused batch."""

    def __init__(self, broker: Broker, writer: Any, *, in_sequence: bool) -> None:
        self._writer = writer
        self._in_sequence = in_sequence
        self._changed = broker.store.runtime.tasks.condition()
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._ended = self._ending = self._refused = False
        self._task = broker.store.runtime.tasks.spawn("flight-append", self._run)

    def add(self, waiting: _Waiting) -> bool:
        """Queue a batch to be answered; waits while too many are queued. Returns False if no more batches may be
        appended, because a batch was refused or the client is gone."""
        with self._changed:
            self._waiting.append(waiting)
            self._bytes += waiting.size
            self._changed.notify_all()
            while (
                self._bytes > limits.CONNECTION_BYTES_MAX or len(self._waiting) >= limits.CONNECTION_BATCHES_MAX
            ) and not self._refused:
                self._changed.wait()
            return not self._refused

    def announce_end(self) -> None:
        """Tell the client to continue on another broker. Does not wait."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()

    def end(self) -> None:
        """Return once all queued batches are answered, or after `limits.TASK_END_S`."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._task.join(limits.TASK_END_S)

    def _run(self) -> None:
        announced = False
        while True:
            with self._changed:
                while not self._waiting and not self._ended and (announced or not self._ending):
                    self._changed.wait()
                first = self._waiting[0] if self._waiting else None
                if first is None and (announced or not self._ending):
                    return
            if first is None:
                announced = True
                self._write(v1.AppendAnswer(ending=True))
                continue
            self._write(_outcome(first))
            with self._changed:
                self._waiting.popleft()
                self._bytes -= first.size
                self._changed.notify_all()

    def _write(self, answer: v1.AppendAnswer) -> None:
        """Send the answer, unless the client is gone or an earlier batch was refused: the client renumbers the batches
        after a refused one."""
        refused = bool(answer.error) and self._in_sequence
        if not self._refused:
            try:
                self._writer.write(answer.SerializeToString())
            except (pa.ArrowException, OSError):
                refused = True  # the client is gone: later batches get no answer, whether they become durable or not
        if refused:
            with self._changed:
                self._refused = True
                self._changed.notify_all()


def append(broker: Broker, principal: Principal, command: v1.AppendCommand, reader: Any, writer: Any) -> None:
    """Append what the client sends until it stops. Refusals are messages, because Flight does not send an error before
    the client has ended its side. After a refused
    batch of a producer, its later batches are not appended."""
    try:
        info = allowed_stream(broker, principal, named_stream(command), "write", "append")
        holding = broker.guard.hold(principal, "connections")
        target = _target(broker, info, command)
    except AnabranchError as exc:
        writer.write(v1.AppendOpened(error=error_text(exc)).SerializeToString())
        return
    with holding:
        try:
            opened = v1.AppendOpened(stream_id=info.id, epoch=target.epoch, last_sequence=target.last_sequence)
            writer.write(opened.SerializeToString())
            answers = _Answers(
                broker, writer, in_sequence=command.HasField("producer") or command.HasField("byte_fence")
            )
            forget = broker.drain.on_start(answers.announce_end)
            try:
                _take(broker, principal, info, target, reader, answers)
            finally:
                forget()
        finally:
            # The error was sent as the answer to a batch, or the client is gone.
            with suppress(AnabranchError):
                target.close()


def _take(
    broker: Broker, principal: Principal, info: StreamInfo, target: _Target, reader: Any, answers: _Answers
) -> None:
    clock = broker.store.runtime.clock
    right = StreamRight(broker.store, broker.guard, principal, info.id, "write", verb="append")
    refreshed_at = clock.monotonic()
    broker.loads.refresh(info.id)

    def accepted(batch: pa.RecordBatch, metadata: v1.AppendMetadata) -> Callable[[], AppendedRows]:
        nonlocal refreshed_at
        if clock.monotonic() - refreshed_at > limits.LOAD_POLICY_S:
            broker.loads.refresh(info.id)
            refreshed_at = clock.monotonic()
        right.check()
        broker.guard.admit(principal, calls=0, bytes_=batch.nbytes)
        _check(batch)
        return target.append(batch, metadata)

    try:
        while (chunk := _next(reader)) is not None:
            batch, metadata = chunk
            try:
                outcome = accepted(batch, metadata)
            except AnabranchError as exc:
                outcome = _refused(exc)
            if not answers.add(_Waiting(metadata.sequence, batch.nbytes, outcome)):
                return
    except AnabranchError as exc:
        answers.add(_Waiting(-1, 0, _refused(exc)))
    finally:
        answers.end()


def _next(reader: Any) -> tuple[pa.RecordBatch, v1.AppendMetadata] | None:
    try:
        chunk = reader.read_chunk()
    except StopIteration:
        return None
    except pa.ArrowException as exc:
        raise InvalidArgument(f"the Arrow data can't be read: {exc}") from exc
    if chunk.data is None:
        raise InvalidArgument("expected a batch with every AppendMetadata")
    return chunk.data, parse(v1.AppendMetadata, b"" if chunk.app_metadata is None else chunk.app_metadata.to_pybytes())


def _check(batch: pa.RecordBatch) -> None:
    """Check Arrow data from an untrusted client. Raises InvalidArgument, TooLarge."""
    if batch.nbytes > limits.BATCH_BYTES_MAX:
        raise TooLarge("a batch", batch.nbytes, limits.BATCH_BYTES_MAX)
    try:
        batch.validate()
        check_values(batch)
    except (pa.ArrowException, ValueError) as exc:
        raise InvalidArgument(f"the batch is not valid Arrow data: {exc}") from exc


def _refused(error: AnabranchError) -> Callable[[], AppendedRows]:
    def outcome() -> AppendedRows:
        raise error

    return outcome


def _outcome(waiting: _Waiting) -> v1.AppendAnswer:
    try:
        outcome = waiting.outcome()
    except AnabranchError as exc:
        return v1.AppendAnswer(sequence=waiting.sequence, error=error_text(exc))
    except Exception as exc:
        FLIGHT_FAILED(error=exc, traceback=exc)
        return v1.AppendAnswer(sequence=waiting.sequence, error=error_text(AppendRefused("the broker failed")))
    return v1.AppendAnswer(
        sequence=waiting.sequence,
        ranges=[v1.AppendedRange(segment=s.packed, start=start, count=count) for s, start, count in outcome.ranges],
        duplicate=outcome.duplicate,
        range_of_row=outcome.range_of_row,
        weight=0.0 if outcome.sampled is None else outcome.sampled.weight,
        kept_rows=b"" if outcome.sampled is None else outcome.sampled.rows.astype("<u4").tobytes(),
    )


def _target(broker: Broker, info: StreamInfo, command: v1.AppendCommand) -> _Target:
    if command.HasField("byte_fence"):
        return ByteTarget(broker, info.id, command)
    kind = _ProducerTarget if command.HasField("producer") else _WriterTarget
    return kind(broker, info, command)
