"""A reader of a group: the events of the segments that are its own at the moment."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import pyarrow as pa

from anabranch.core.shared import constant
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
from anabranch.log.read import appended_of, offsets_of
from anabranch.log.tail import Tail
from anabranch.model.columns import ADDED
from anabranch.model.event import Event
from anabranch.model.position import Position, StreamSegment
from anabranch.readers.group.intake import Delivery, Intake
from anabranch.readers.group.output import OutputUnits
from anabranch.readers.group.ports import Outputs, StoredPositions
from anabranch.readers.group.progress import DeliveryMode, Progress
from anabranch.readers.group.share import Share
from anabranch.readers.group.standing import Standing
from anabranch.readers.pump import Pump
from anabranch.runtime.ports import Runtime


class GroupReader:
    """Reads its share of a group's streams. For one consumer; only `close` may be called from another thread.

    All events of a key come in the order in which they were appended, across splits, merges and changes of readers:
    a segment moves to another reader only behind an event that is done with. An event is done with when the next one is
    asked for.

    `delivery` says when a position is accepted, which is where the segment goes on should this reader be killed.
    `at_least_once`: a moment after the event is done with; what came in that moment comes again. `at_most_once`:
    before a batch of events is handed out; what was not done with is lost. `exactly_once`: by `commit` alone, together
    with the output. A reader that is closed after an error, or left by one, does not have the last event accepted.

    A task of its own gives signs of life and tells positions, as often as the group refreshes, however long the
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
        window: Callable[[str | None], TimeWindow],
    ) -> None:
        if delivery not in ("at_least_once", "at_most_once", "exactly_once"):
            raise InvalidArgument(f"delivery is at_least_once, at_most_once or exactly_once, not '{delivery}'")
        if positions is not None and delivery != "exactly_once":
            raise InvalidArgument("positions= stores them with the output, which is delivery='exactly_once'")
        self._share = share
        self._progress = Progress(delivery)
        self._standing = Standing(share, intake, self._progress, positions)
        self._tail = tail
        self._clock = runtime.clock
        self._refresh_s = min(share.state.refresh_us, share.state.lease_us // 8) / 1e6
        self._units = OutputUnits(share, outputs)
        self._on_close = on_close
        self._window = window
        self._on_checkpoint: list[Callable[[str], None]] = []
        self._busy = runtime.tasks.lock()
        self._ready: Delivery | None = None  # pulled for a coroutine, but not handed out yet
        self._error: AnabranchError | None = None
        self._closed = False
        self._done = True  # whether what it had in hand counts as done with when it is closed
        self._ending = False  # somebody closes it, or has closed it
        share.join()
        self._standing.meet()
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
        return sorted(self._progress.segments)

    @property
    def position(self) -> Position:
        """Behind the last event or batch handed out, in each segment that it reads now."""
        return Position.of(self._progress.position())

    def time_window(self, stream: str | None = None) -> TimeWindow:
        """What the writers' noted times say of what the group has accepted: nothing that any of its readers is still given
        is older than `lower`. See `ReaderGroup.time_window`."""
        return self._window(stream)

    def on_checkpoint(self, handle: Callable[[str], None]) -> None:
        """Call `handle` with a checkpoint's name when the reader comes to it: between two batches, also where it hands out their
        events one by one, in the thread that asks for the next. What it handed out before lies before the checkpoint."""
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
            if self._progress.hand is not None:
                yield from self._progress.hand.events
            if self._wait(None) is None:
                return

    async def _events_async(self) -> AsyncIterator[Event]:
        while True:
            if self._progress.hand is not None:
                for event in self._progress.hand.events:
                    yield event
            if self._ready is None and not self._closed:
                with suppress(Closed):
                    await self._pump.call()
            delivery, self._ready = self._ready, None
            if delivery is None or self._closed:
                return

    def _batch(self, delivery: Delivery) -> pa.RecordBatch:
        self._progress.take_whole(delivery)
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
        After StoreUnavailable, or AppendUncertain, where nobody knows whether they are there: called again before anything
        more is read, it is the same commit, with the outputs of the first call; later, that one is written first.
        """
        with self._busy:
            self._alive()
            try:
                self._commit(outputs or {})
            except ReaderNotInGroup as exc:
                self._error = exc
                raise

    def _commit(self, outputs: Mapping[str, Any]) -> None:
        positions = self._progress.position()
        self._units.commit(positions, outputs)
        self._progress.finish(positions)
        if not outputs:
            self._standing.meet()

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
                delivery = self._standing.next(silent_s_max=2 * self._refresh_s)
                if delivery is not None:
                    self._progress.take(delivery)  # under the lock, or its segment might be given up in between
                    return delivery
                if self._standing.finished():
                    return None
            left = self._refresh_s
            if deadline is not None:
                left = min(left, deadline - self._clock.monotonic())
                if left <= 0:
                    return None
            self._tail.wait(seen, left)
        return None

    def _come_to_checkpoint(self) -> None:
        checkpoint = self._share.awaited_checkpoint
        if checkpoint is None:
            return
        with self._busy:
            self._alive()
            self._standing.put_down()
        for handle in () if checkpoint.silent else self._on_checkpoint:
            handle(checkpoint.name)
        with self._busy:
            self._alive()
            self._standing.meet(at_checkpoint=checkpoint.name)

    # the group

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
                    before = set(self._progress.segments)
                    self._standing.look_and_meet()
                    changed = before != set(self._progress.segments)
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
        harmless; behind Ctrl-C it does what is left. Nothing is raised where the group went on without this reader."""
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
        try:
            with self._stopping:
                if self._ending:
                    return
                if not self._closed:
                    self._done = done
                self._closed = self._ending = True
                self._stopping.notify_all()
            self._pump.close()
            self._tail.notify()
            self._depart()
        except AnabranchError:
            raise
        except BaseException:
            self._ending = False
            raise

    def _depart(self) -> None:
        try:
            with self._busy:
                if self._done:
                    self._standing.put_down()
                self._standing.close()
                if self._error is None:
                    self._leave()
                with suppress(StoreUnavailable, AppendUncertain):
                    self._units.end()
        except AnabranchError:
            self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._life.join()
        if self._on_close is not None:
            self._on_close(self)

    def abandon(self) -> None:
        """Leave the group as after an error: the last event or batch handed out is not accepted."""
        self._close(done=False)

    def _leave(self) -> None:
        with suppress(ReaderNotInGroup, GroupNotFound):
            try:
                self._standing.leave()
            except (StoreUnavailable, Closed):  # away, or closed meanwhile by another thread
                return  # its lease will run out
