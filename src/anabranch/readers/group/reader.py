"""A reader of a group: the events of the segments that are its own at the moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import repeat
from operator import length_hint
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol

import pyarrow as pa

from anabranch import limits
from anabranch.errors import (
    AnabranchError,
    AppendUncertain,
    Closed,
    GroupNotFound,
    InvalidArgument,
    ReaderNotInGroup,
    StoreUnavailable,
    Truncated,
)
from anabranch.log.read import appended_of, constant, offsets_of
from anabranch.log.tail import Tail
from anabranch.model.append import Part
from anabranch.model.columns import ADDED
from anabranch.model.event import Event, EventRun
from anabranch.model.position import Position, StreamSegment
from anabranch.readers.group.intake import Delivery, Intake
from anabranch.readers.group.share import Share
from anabranch.readers.pump import Pump
from anabranch.runtime.ports import Runtime

DeliveryMode = Literal["at_least_once", "at_most_once", "exactly_once"]


class StoredPositions(Protocol):
    """Where an application stores how far it is, together with its output; see `SqlPositions`."""

    def load(self, group: str, segment: StreamSegment) -> int | None:
        """The offset that is stored for a segment, or None."""
        ...


class Outputs(Protocol):
    """Writes events and a part of somebody's state as one atomic unit. The store has one."""

    def stage(self, outputs: Mapping[str, Any]) -> Sequence[Any]:
        """Batches by stream, made ready. Raises SchemaMismatch, StreamNotFound, TooLarge."""
        ...

    def publish(self, staged: Sequence[Any], part: Part, *, series: str, number: int) -> None:
        """Append both, or neither; nothing if that number of the series, or a higher one, was published before. Raises
        ConditionFailed where the part's condition does not hold."""
        ...

    def end(self, series: str) -> None:
        """Nothing more will be published in a series."""
        ...


class _Hand(NamedTuple):
    """What is being handed out: a whole batch, or events one by one, of which `left` counts those still to come."""

    delivery: Delivery
    left: Iterator[int] | None
    events: Iterator[Event]


def _in_hand(delivery: Delivery) -> _Hand:
    info, rows = delivery.view.info, delivery.rows
    run = EventRun(info.id, info.schema, delivery.segment.segment, rows.batch, rows.first, None, rows.appended)
    left = iter(range(rows.batch.num_rows))
    # `map` over C iterators makes an event in a tenth of a microsecond.
    return _Hand(delivery, left, map(Event, repeat(run), left))


class GroupReader:
    """Reads its share of a group's streams. For one consumer; only `close` may be called from another thread.

    All events of a key come in the order in which they were appended, across splits, merges and changes of readers:
    a segment moves to another reader only behind an event that is done with. An event is done with when the next one is
    asked for.

    `delivery` says when a position is accepted, which is where the segment goes on should this reader be killed.
    `at_least_once`: a moment after the event is done with; what came in that moment comes again. `at_most_once`:
    before a batch of events is handed out; what was not done with is lost. `exactly_once`: by `commit` alone, together
    with the output. A reader that is closed after an error, or left by one, does not have the last event accepted.

    A task of its own gives signs of life and tells positions, every `limits.READER_REFRESH_US`, however long the
    application takes for an event. A reader that was presumed dead all the same gets ReaderNotInGroup, within a batch
    of `limits.READER_ROWS_MAX`; what it reads until then is accepted from nobody.

    Raises while reading: ReaderNotInGroup, GroupNotFound, StreamNotFound; Truncated, once, where what it was to read is
    gone: whoever reads on goes on behind it; CorruptBlob and BlobMissing.
    """

    def __init__(
        self,
        share: Share,
        intake: Intake,
        tail: Tail,
        runtime: Runtime,
        *,
        delivery: DeliveryMode = "at_least_once",
        outputs: Outputs,
        positions: StoredPositions | None = None,
        on_close: Callable[[GroupReader], None] | None = None,
    ) -> None:
        if delivery not in ("at_least_once", "at_most_once", "exactly_once"):
            raise InvalidArgument(f"delivery is at_least_once, at_most_once or exactly_once, not '{delivery}'")
        if positions is not None and delivery != "exactly_once":
            raise InvalidArgument("positions= stores them with the output, which is delivery='exactly_once'")
        self._share = share
        self._intake = intake
        self._tail = tail
        self._clock = runtime.clock
        self._mode: DeliveryMode = delivery
        self._refresh_s = min(limits.READER_REFRESH_US, share.state.lease_us // 8) / 1e6
        self._outputs = outputs
        self._commits = 0  # with output: each is a number of a series, so that a lost answer doubles none
        self._stored = positions
        self._on_close = on_close
        self._on_checkpoint: list[Callable[[str], None]] = []
        self._busy = runtime.tasks.lock()
        self._accepted: dict[StreamSegment, int] = {}  # of the segments that are read, how far the application is done
        self._handed: dict[StreamSegment, int] = {}  # of the same, behind what was handed out before the hand
        self._hand: _Hand | None = None
        self._ready: Delivery | None = None  # pulled for a coroutine, but not handed out yet
        self._error: AnabranchError | None = None
        self._closed = False
        share.join()
        self._meet()
        self._stopping = runtime.tasks.condition()
        self._life = runtime.tasks.spawn(f"reader-{share.reader}", self._live)
        self._pump = Pump(runtime.tasks, self._fill, tail.notify)

    # what it reads

    @property
    def name(self) -> str:
        """The reader's name in its group."""
        return self._share.reader

    @property
    def group(self) -> str:
        """The group's name."""
        return self._share.group

    @property
    def segments(self) -> list[StreamSegment]:
        """The segments that it reads now."""
        return sorted(self._accepted)

    @property
    def position(self) -> Position:
        """Behind the last event or batch handed out, in each segment that it reads now."""
        return Position.of(self._position())

    def on_checkpoint(self, handle: Callable[[str], None]) -> None:
        """Call `handle` with a checkpoint's name when the reader comes to it: between two events or batches, in the thread
        that asks for the next. What it handed out before lies before the checkpoint."""
        self._on_checkpoint.append(handle)

    # events and batches

    def __iter__(self) -> Iterator[Event]:
        """The events, until the group's end, or for ever. Raises Closed."""
        self._enter()
        return self._events()

    def __aiter__(self) -> AsyncIterator[Event]:
        """The same for coroutines; the event loop is never blocked. Raises Closed."""
        self._enter()
        return self._events_async()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The same as `pa.RecordBatch`es: the stream's columns, then `_segment` (int64, `SegmentId.packed`), `_offset` and
        `_appended`. Each holds rows of one segment, in offset order; its schema's metadata `stream` names the stream.
        Raises Closed."""
        self._enter()
        while (delivery := self._wait(None)) is not None:
            yield self._batch(delivery)

    def read(self, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next batch; None if there is none within `timeout_s` seconds, or at the group's end. Raises Closed."""
        self._enter()
        delivery = self._wait(timeout_s)
        return None if delivery is None else self._batch(delivery)

    def _events(self) -> Iterator[Event]:
        while True:
            if self._hand is not None:
                yield from self._hand.events
            if self._wait(None) is None:
                return

    async def _events_async(self) -> AsyncIterator[Event]:
        while True:
            if self._hand is not None:
                for event in self._hand.events:
                    yield event
            if self._ready is None and not self._closed:
                with suppress(Closed):
                    await self._pump.call()
            delivery, self._ready = self._ready, None
            if delivery is None or self._closed:
                return

    def _batch(self, delivery: Delivery) -> pa.RecordBatch:
        self._hand = _Hand(delivery, None, iter(()))
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
        """Have everything handed out so far accepted, durably.

        `outputs` are batches by stream (anything with `__arrow_c_stream__`): they are appended in the same atomic unit as
        the position, so that both are there or neither, whatever is killed. Events made from what was read before are
        therefore written once. Raises ReaderNotInGroup, and then nothing was written; what `Writer.write_batch` raises.
        """
        with self._busy:
            self._alive()
            try:
                self._commit(outputs or {})
            except ReaderNotInGroup as exc:
                self._error = exc
                raise

    def _commit(self, outputs: Mapping[str, Any]) -> None:
        positions = self._position()
        if outputs:
            staged, self._commits = self._outputs.stage(outputs), self._commits + 1
            number, series = self._commits, self._share.session
            self._share.commit(
                positions, lambda part: self._outputs.publish(staged, part, series=series, number=number)
            )
            self._accepted.update(positions)
        else:
            self._accepted.update(positions)
            self._meet()

    def _position(self) -> dict[StreamSegment, int]:
        found = dict(self._handed)
        if self._hand is not None and self._hand.delivery.segment in found:
            rows = self._hand.delivery.rows
            found[self._hand.delivery.segment] = rows.stop - (
                0 if self._hand.left is None else length_hint(self._hand.left)
            )
        return found

    def _done_with(self) -> dict[StreamSegment, int]:
        """How far the application is certainly done, as its mode has it."""
        done = dict(self._accepted)
        if self._mode == "at_least_once" and self._hand is not None and self._hand.left is not None:
            segment, rows = self._hand.delivery.segment, self._hand.delivery.rows
            if segment in done:  # all but the event that was handed out last
                done[segment] = max(done[segment], rows.stop - length_hint(self._hand.left) - 1)
        return done

    def _put_down(self) -> None:
        """The application asks for more: what it had in hand is done with."""
        if self._hand is None:
            return
        segment, left = self._hand.delivery.segment, self._hand.left
        stop = self._hand.delivery.rows.stop - (0 if left is None else length_hint(left))
        self._hand = None
        if segment not in self._handed:
            return
        if stop < self._intake.positions[segment]:  # the rest of the batch was not asked for as events
            self._intake.begin(segment, stop)
        self._handed[segment] = stop
        if self._mode != "exactly_once":
            self._accepted[segment] = max(self._accepted[segment], stop)

    # waiting

    def _enter(self) -> None:
        if self._pump.busy:
            raise InvalidArgument("a reader has one consumer at a time; open another reader")
        if self._closed:
            raise Closed("reader")

    def _alive(self) -> None:
        if self._closed:
            raise Closed("reader")
        if self._error is not None:
            raise self._error

    def _wait(self, timeout_s: float | None) -> Delivery | None:
        return self._wait_until(timeout_s, lambda: self._closed)

    def _fill(self, interrupted: Callable[[], bool]) -> bool:
        if self._ready is None:
            self._ready = self._wait_until(None, lambda: self._closed or interrupted())
        return self._ready is not None or not interrupted()

    def _wait_until(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> Delivery | None:
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while not interrupted():
            self._come_to_checkpoint()
            seen = self._tail.seen()
            with self._busy:
                if self._closed:
                    return None
                self._alive()
                delivery = self._next()
                if delivery is not None:
                    self._hand = _in_hand(delivery)  # under the lock, or its segment might be given up in between
                    return delivery
                if self._share.state.finished(self._intake.views):
                    return None
            left = self._refresh_s
            if deadline is not None:
                left = min(left, deadline - self._clock.monotonic())
                if left <= 0:
                    return None
            self._tail.wait(seen, left)
        return None

    def _next(self) -> Delivery | None:
        """The next rows if there are any, with whatever the group wants of this reader on the way."""
        self._put_down()
        if self._share.silent_s > 2 * self._refresh_s:
            self._meet()  # its task does not get through: then this one must, or raise
        delivery = self._pull()
        if delivery is None:
            if self._intake.refresh():
                delivery = self._pull()
            if delivery is None and (self._share.changed or self._exhausted()):
                self._meet()
                delivery = self._pull()
        if delivery is not None and self._mode == "at_most_once":
            self._handed[delivery.segment] = self._accepted[delivery.segment] = delivery.rows.stop
            self._meet()
        return delivery

    def _pull(self) -> Delivery | None:
        self._open_new()
        try:
            return self._intake.pull()
        except Truncated:
            self._share.skip_truncated(self._intake.views)
            self._adopt()
            raise

    def _exhausted(self) -> bool:
        """True if a segment of its own is read to its end, and done with: others may be waiting for that."""
        return any(self._accepted[segment] >= self._intake.positions[segment] for segment in self._intake.exhausted())

    def _come_to_checkpoint(self) -> None:
        name = self._share.awaited_checkpoint
        if name is None:
            return
        with self._busy:
            self._alive()
            self._put_down()
        for handle in self._on_checkpoint:
            handle(name)
        with self._busy:
            self._alive()
            self._meet(at_checkpoint=True)

    # the group

    def _meet(self, *, at_checkpoint: bool = False) -> None:
        """Exchange news with the group. Needs the lock, but for the first time."""
        keep = {segment for segment, at in self._position().items() if at > self._accepted[segment]}
        if self._hand is not None:
            keep.add(self._hand.delivery.segment)
        self._share.meet(self._done_with(), self._intake.views, keep=keep, at_checkpoint=at_checkpoint)
        self._adopt()

    def _adopt(self) -> None:
        """Have the segments that are this reader's now."""
        owned = self._share.owned
        reached = self._position()
        gone = self._accepted.keys() - owned.keys()
        self._intake.drop(gone)
        for segment in gone:
            del self._accepted[segment], self._handed[segment]
        for segment, offset in owned.items():
            # The group is ahead of this reader only where what it would read was truncated.
            if segment not in self._accepted or offset > reached[segment]:
                self._accepted[segment] = self._handed[segment] = offset
                if self._stored is None:
                    self._intake.begin(segment, offset)

    def _open_new(self) -> None:
        """Begin the segments whose offset the application's own database knows: in its thread, which may use that."""
        if self._stored is None:
            return
        for segment, offset in self._accepted.items():
            if segment not in self._intake.positions:
                known = self._stored.load(self.group, segment)
                self._accepted[segment] = self._handed[segment] = max(offset, known or 0)
                self._intake.begin(segment, self._accepted[segment])

    def _live(self) -> None:
        """The task that gives signs of life."""
        while True:
            with self._stopping:
                if not self._closed:
                    self._stopping.wait(self._refresh_s)
                if self._closed:
                    return
            try:
                with self._busy:
                    if self._closed or self._error is not None:
                        return
                    before = self._accepted.keys()
                    self._intake.refresh()
                    self._meet()
                    changed = before != self._accepted.keys()
                if changed or self._share.awaited_checkpoint is not None:
                    self._tail.notify()
            except StoreUnavailable:
                continue  # it may come back within the lease; else whoever reads hears of it
            except AnabranchError as exc:
                self._error = exc
                self._tail.notify()

    # closing

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """Leave the group: what is done with is accepted, and others go on with the segments at once. A second close is
        harmless. Nothing is raised where the group went on without this reader."""
        self._close(done=True)

    def __enter__(self) -> GroupReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(done=error is None)

    async def __aenter__(self) -> GroupReader:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(done=error is None)

    def _close(self, *, done: bool) -> None:
        with self._stopping:
            if self._closed:
                return
            self._closed = True
            self._stopping.notify_all()
        self._pump.close()
        self._tail.notify()
        try:
            with self._busy:
                if done:
                    self._put_down()
                self._intake.close()
                if self._error is None:
                    self._leave()
                if self._commits:
                    self._end_series()
        finally:
            self._life.join()
            if self._on_close is not None:
                self._on_close(self)

    def abandon(self) -> None:
        """Leave the group as after an error: the last event or batch handed out is not accepted."""
        self._close(done=False)

    def _end_series(self) -> None:
        with suppress(StoreUnavailable, AppendUncertain):  # then a row is left behind, which does no harm
            self._outputs.end(self._share.session)

    def _leave(self) -> None:
        with suppress(ReaderNotInGroup, GroupNotFound):
            try:
                self._share.leave(self._done_with(), self._intake.views)
            except StoreUnavailable:
                return  # its lease will run out
