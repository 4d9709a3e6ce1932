"""A producer: a named sequence of numbered appends to one stream, each of which takes effect once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.closeable import Closeable
from anabranch.core.display import Displayed
from anabranch.errors import Closed, Fenced, InvalidArgument, OutOfSequence
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.producer import ProducerState
from anabranch.runtime.ports import Runtime
from anabranch.writing.acknowledgement import BatchAck, EventRange, Rows
from anabranch.writing.producer_claim import OpenedProducer
from anabranch.writing.writer import Writer


@dataclass(frozen=True, slots=True)
class ProducerResult:
    """Where an append's events lie. `duplicate`: they had been appended before, and `ranges` is the answer to the first
    append; empty if that answer is no longer kept."""

    stream: StreamId
    sequence: int
    ranges: tuple[EventRange, ...]
    duplicate: bool = False

    @property
    def pointer(self) -> EventPointer | None:
        """The pointer of the first of the events, by segment and offset; None if it is no longer known."""
        if not self.ranges:
            return None
        first = self.ranges[0]
        return EventPointer(self.stream, first.segment, first.start)

    @property
    def events(self) -> int | None:
        """How many events were appended; None if that is no longer known."""
        return sum(each.stop - each.start for each in self.ranges) if self.ranges else None


class ProducerAck(Displayed):
    """The pending answer to one append of a producer. Also awaitable."""

    __slots__ = ("_ack", "_repeat", "_result", "_stream", "sequence")

    def __init__(
        self,
        stream: StreamId,
        sequence: int,
        ack: BatchAck | None,
        *,
        repeat: bool = False,
        result: ProducerResult | None = None,
    ) -> None:
        """`result` is given where it is known at once, `ack` where it is not."""
        self._stream = stream
        self.sequence = sequence
        self._ack = ack
        self._repeat = repeat
        self._result = result

    def _facts(self) -> Mapping[str, object]:
        return {"sequence": self.sequence, "state": "done" if self.done() else "pending"}

    def done(self) -> bool:
        """True once `result` will not wait."""
        return self._ack is None or self._ack.done()

    def result(self, timeout: float | None = None) -> ProducerResult:
        """Where the events lie, once all are durable.

        Raises the error the append was refused with, AppendUncertain where its outcome is unknown, TimeoutError after
        `timeout` seconds (it may still become durable).
        """
        if self._result is None:
            assert self._ack is not None, "one of both is given"
            ranges = self._ack.result(timeout)
            self._result = ProducerResult(self._stream, self.sequence, ranges, self._repeat or self._ack.repeated)
        return self._result

    def landings(self) -> list[tuple[SegmentId, int, Rows]]:
        """Which of the batch's events landed where, once all are durable; empty where that is no longer known. Raises
        what `result` raises."""
        return [] if self._ack is None else self._ack.landings()

    def __await__(self) -> Generator[object, None, ProducerResult]:
        if self._ack is not None:
            yield from self._ack.__await__()
        return self.result()


class Producer(Displayed, Closeable):
    """Appends to one stream, each append with the next number. Each append takes effect once, even if another process
    repeats it. Thread-safe.

    An append is one atomic unit, whatever segments its events go to; it is accepted when the call returns, and durable
    when its acknowledgement says so. Many may be unacknowledged. An append with a number that was appended before gets
    the first answer, and nothing is appended; a number that leaves a gap is refused with OutOfSequence, an older epoch
    with Fenced.

    After any refusal by the store nothing more is appended by this object, so that no later append gets the number of a
    refused one: open the producer again, and repeat from the refused append. A gap is refused before anything is sent.
    """

    def __init__(
        self,
        catalog: Catalog,
        runtime: Runtime,
        opened: OpenedProducer,
        open_writer: Callable[[], Writer],
        on_close: Callable[[Producer], None],
    ) -> None:
        """`open_writer` is called with the first append that is not a repeat."""
        self._catalog = catalog
        self._opened = opened
        self._open_writer = open_writer
        self._on_close = on_close
        self._lock = runtime.tasks.lock()
        self._writer: Writer | None = None
        self._next = opened.last + 1
        self._durable = opened.last
        self._acks: dict[int, BatchAck] = {}  # the last ones, and all that are not done
        self._closed = False

    def _facts(self) -> Mapping[str, object]:
        state = "closed" if self._closed else "open"
        return {"name": self.name, "epoch": self.epoch, "next": self._next, "state": state}

    @property
    def name(self) -> str:
        """The producer's name, unique in the stream."""
        return self._opened.name

    @property
    def epoch(self) -> int:
        """The epoch in which it was opened."""
        return self._opened.epoch

    @property
    def stream_id(self) -> StreamId:
        """The id of the stream that it appends to, which does not change with renames."""
        return self._opened.stream

    @property
    def last_sequence(self) -> int:
        """The number of the last append that is known to be durable; -1 before the first of the epoch."""
        with self._lock:
            self._settle()
            return self._durable

    def append(self, data: Any, *, sequence: int | None = None) -> ProducerAck:
        """Append a batch: anything with `__arrow_c_stream__` (Arrow, pandas, polars …), or a list of events as
        `Writer.write` takes them. `sequence`: its number, by default the next one. Blocks while too much is pending.

        Raises OutOfSequence for a number after the next one, Fenced, InvalidArgument for no events, Closed, and what
        `Writer.write_batch` raises.
        """
        with self._lock:
            if self._closed:
                raise Closed("producer")
            self._settle()
            if sequence is not None:
                _check_sequence(sequence)
                if sequence > self._next:
                    self._catch_up(sequence)
                if sequence < self._next:
                    return self._repeated(sequence)
            return self._append(data, repeatable=sequence is not None)

    def _append(self, data: Any, *, repeatable: bool) -> ProducerAck:
        if self._writer is None:
            self._writer = self._open_writer()
        writer = self._writer
        number = self._next
        ack = writer.write_numbered(data, number, repeatable=repeatable)
        self._next = number + 1
        self._acks[number] = ack
        return ProducerAck(self._opened.stream, number, ack)

    def _catch_up(self, sequence: int) -> None:
        """Load the number of the last append that any process has made in this epoch."""
        if not self._acks or all(ack.done() for ack in self._acks.values()):
            self._next = max(self._next, self._row().last + 1)
        if sequence > self._next:
            raise OutOfSequence(self._next, sequence)

    def _repeated(self, sequence: int) -> ProducerAck:
        stream = self._opened.stream
        if (ack := self._acks.get(sequence)) is not None:
            return ProducerAck(stream, sequence, ack, repeat=True)
        row = self._row()
        if sequence > row.last:  # the store was restored as it had been before
            raise OutOfSequence(row.last + 1, sequence)
        answer = row.answers.find(self._opened.epoch, sequence, sequence)
        ranges = sorted(
            EventRange(SegmentId.unpack(each.segment), each.start, each.start + each.length)
            for each in (() if answer is None else answer.events)
        )
        return ProducerAck(
            stream, sequence, None, result=ProducerResult(stream, sequence, tuple(ranges), duplicate=True)
        )

    def _row(self) -> ProducerState:
        """What the stream stores about the producer now. Raises Fenced if it was taken over."""
        opened = self._opened
        with self._catalog.reading() as txn:
            row = txn.producer(opened.stream, opened.name)
        if row is None:
            return ProducerState(opened.epoch)
        if row.epoch > opened.epoch:
            raise Fenced(opened.epoch, row.epoch)
        return row

    def _settle(self) -> None:
        """Note which appends have become durable, and drop the answers that can no longer be requested."""
        for number, ack in list(self._acks.items()):
            if not ack.done():
                break
            if ack.error is not None:
                break  # it stays, so that a repeat of it is refused too
            self._durable = max(self._durable, number)
            if number <= self._next - 1 - limits.PRODUCER_ANSWERS_KEPT:
                del self._acks[number]

    def flush(self) -> None:
        """Return once every append accepted so far is durable. Raises the first refusal since the last flush."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Return once every append accepted so far is durable, and accept no more. A second call is harmless. Raises the
        first refusal that was not raised before."""
        with self._lock:
            self._closed = True
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._on_close(self)


def _check_sequence(sequence: int) -> None:
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 1 << 62:
        raise InvalidArgument(
            f"expected the sequence number of an append as an integer of at least 0, got {sequence!r:.100}"
        )
