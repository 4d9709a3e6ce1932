"""Outcomes of written events: one acknowledgement for all events that were accepted together, and light handles on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError, Conflict, EventNotFound
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.model.seconds import wait_limit
from anabranch.runtime.tracing import AppendSpan
from anabranch.writing.refusals import Refusals

Rows = npt.NDArray[np.intp]


class EventRange(NamedTuple):
    """Consecutive events of one segment, `start <= offset < stop`."""

    segment: SegmentId
    start: int
    stop: int


class Waiter(Protocol):
    """Waits for a chunk, or does the work itself: the appender."""

    def wait(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """See `Appender.wait`."""
        ...


class Acknowledgement:
    """Events accepted together by a writer, and where each of them landed."""

    __slots__ = (
        "_appended",
        "_callbacks",
        "_counted",
        "_left_out",
        "_pointers",
        "_refusals",
        "_refused",
        "_repeated",
        "_waiter",
        "_was_repeated",
        "accepted",
        "settled",
        "span",
        "stream",
        "total",
        "unplaced",
    )

    def __init__(self, stream: StreamId, waiter: Waiter, refusals: Refusals) -> None:
        self.stream = stream
        self._refusals = refusals
        self.total = -1  # unknown until the chunk is closed
        self.accepted = 0  # rows that the writer has taken over, or refused
        self.settled = 0
        self.unplaced = False  # the ranges are known, but not which event is in which
        self.span: AppendSpan | None = None
        self._waiter = waiter
        # By a key of the report, so that an interrupted report may be repeated.
        self._appended: dict[Hashable, tuple[SegmentId, int, Rows]] = {}
        self._refused: dict[Hashable, tuple[AnabranchError, Rows]] = {}
        self._left_out: dict[Hashable, Rows] = {}
        self._was_repeated = False
        self._repeated: dict[Hashable, tuple[tuple[EventRange, ...], int]] = {}
        self._counted = 0  # how many of these are included in `settled`
        self._pointers: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """True once every event is durable or refused."""
        return self.settled == self.total

    def trace(self, span: AppendSpan) -> None:
        """Have `span` end once done."""
        if self.span is None:
            self.span = span
            self.when_done(lambda: span.end(self.total, self.error))

    # by the writer's queue, under its lock

    def record_append(self, segment: SegmentId, start: int, rows: Rows, *, key: Hashable) -> None:
        """Record that the events `rows` (row numbers in this acknowledgement) got the offsets from `start` on. A
        repeated call with the same `key` counts once."""
        self._appended[key] = (segment, start, rows)
        self._count(len(rows))

    def record_refusal(self, error: AnabranchError, rows: Rows, *, key: Hashable) -> None:
        """Record that the events `rows` were refused; `key` as for `record_append`."""
        self._refused[key] = (error, rows)
        self._count(len(rows))

    def record_left_out(self, rows: Rows, *, key: Hashable) -> None:
        """Record that the events `rows` are not stored, because the stream keeps a sample; `key` as for
        `record_append`."""
        self._left_out[key] = rows
        self._count(len(rows))

    @property
    def left_out(self) -> int:
        """How many events are not stored, because the stream keeps a sample."""
        return sum(map(len, self._left_out.values()))

    def record_repeated(self, ranges: tuple[EventRange, ...], count: int, *, key: Hashable) -> None:
        """Record that `count` events had been appended before, to `ranges`, which are empty if no longer known. Which
        event is in which range is not known. `key` as for `record_append`."""
        self._repeated[key] = (ranges, count)
        self._count(count)

    @property
    def repeated(self) -> bool:
        """True if the events had been appended before."""
        return self._was_repeated or bool(self._repeated)

    def note_repeated(self) -> None:
        """Note that the events, whose places are recorded one by one, had been appended before."""
        self._was_repeated = True

    def refuse_all(self, total: int, error: AnabranchError) -> None:
        """Refuse all of `total` events, none of which was taken."""
        self.total = total
        self._refused.clear()
        self.record_refusal(error, np.arange(total), key=())

    @property
    def drained(self) -> bool:
        """True once every accepted event is durable or refused. A batch may be accepted in part, if its call was
        interrupted."""
        return self.done or self.settled >= self.accepted

    def _count(self, count: int) -> None:
        reports = len(self._appended) + len(self._refused) + len(self._repeated) + len(self._left_out)
        if reports == self._counted + 1:
            self.settled += count
        else:  # reported again, or the report before this one was interrupted
            self.settled = sum(len(rows) for _, _, rows in self._appended.values())
            self.settled += sum(len(rows) for _, rows in self._refused.values())
            self.settled += sum(rows for _, rows in self._repeated.values()) + self.left_out
        self._counted = reports
        if self.done:
            while self._callbacks:
                self._callbacks[0]()
                del self._callbacks[0]

    # for waiting callers

    def wait(self, timeout_s: float | None) -> None:
        """Return once done. Raises TimeoutError, InvalidArgument."""
        limit_s = None if timeout_s is None else wait_limit("timeout", timeout_s)
        if not self.done and not self._waiter.wait(lambda: self.done, limit_s) and not self.done:
            raise TimeoutError("the append is not durable yet")

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once done, perhaps at once, in the thread that detects it; perhaps twice."""
        self._callbacks.append(callback)
        if self.done:  # calling back twice is harmless
            callback()

    def wait_drained(self) -> None:
        """Return once drained."""
        if not self.drained:
            self._waiter.wait(lambda: self.drained)

    def pointer(self, row: int) -> EventPointer:
        """Where event `row` landed. Raises the error it was refused with; IndexError where the row does not exist."""
        if not 0 <= row < self.total:
            raise IndexError(f"no row {row}: there are {self.total} rows")
        if self._refused:
            for error, rows in self._refused.values():
                if row in rows:
                    raise self._seen(error)
        if any(row in rows for rows in self._left_out.values()):
            raise EventNotFound(
                "the event is not stored: the stream's load policy keeps only a sample of the events above its rate"
            )
        if self._repeated:
            raise Conflict(
                "the event was appended before, by an earlier append of this number; its pointer is no longer known"
            )
        if len(self._appended) == 1 and not self._refused and not self._left_out:
            ((segment, start, _),) = self._appended.values()  # all of them, in order
            return EventPointer(self.stream, segment, start + row)
        if self.unplaced:
            raise EventNotFound("the event is durable, but the broker no longer knows which of the ranges it is in")
        if self._pointers is None:
            segments, offsets = np.zeros(self.total, np.int64), np.zeros(self.total, np.int64)
            for segment, start, rows in self._appended.values():
                segments[rows] = segment.packed
                offsets[rows] = np.arange(start, start + len(rows))
            self._pointers = segments, offsets
        segments, offsets = self._pointers
        return EventPointer(self.stream, SegmentId.unpack(int(segments[row])), int(offsets[row]))

    def landings(self) -> list[tuple[SegmentId, int, Rows]]:
        """Where the events landed, as runs: a segment, the offset of the run's first event, and the row numbers of the
        events. Raises the error of the first refused part."""
        if self._refused:
            raise self._seen(self._first_error())
        return list(self._appended.values())

    def ranges(self) -> tuple[EventRange, ...]:
        """Where the events landed. Raises the error of the first refused part."""
        if self._refused:
            raise self._seen(self._first_error())
        landings = [EventRange(segment, start, start + len(rows)) for segment, start, rows in self._appended.values()]
        return tuple(sorted([*landings, *(each for ranges, _ in self._repeated.values() for each in ranges)]))

    @property
    def error(self) -> AnabranchError | None:
        """The first refusal, or None."""
        return self._first_error() if self._refused else None

    @property
    def errors(self) -> list[AnabranchError]:
        """The refusals so far."""
        return [error for error, _ in self._refused.values()]

    def _seen(self, error: AnabranchError) -> AnabranchError:
        """The error to raise, marked as seen, so that `close` does not raise it again."""
        self._refusals.mark_seen(error)
        return error.with_traceback(None)  # else each raise would add to its traceback

    def _first_error(self) -> AnabranchError:
        return next(iter(self._refused.values()))[0]


class Ack(Displayed):
    """The pending answer to one written event. Also awaitable."""

    __slots__ = ("_acknowledgement", "_row")

    def __init__(self, acknowledgement: Acknowledgement, row: int) -> None:
        self._acknowledgement = acknowledgement
        self._row = row

    def _facts(self) -> Mapping[str, object]:
        return {"state": "done" if self.done() else "pending"}

    def done(self) -> bool:
        """True once `result` will not wait."""
        return self._acknowledgement.done

    def result(self, timeout: float | None = None) -> EventPointer:
        """The event's pointer, once it is durable.

        Raises the error the append was refused with, AppendUncertain where its outcome is unknown, TimeoutError after
        `timeout` seconds (it may still become durable). Raises EventNotFound where the event is not stored because of
        the stream's load policy; and, through a broker, where it is durable but the pointer is not known: it has no key,
        or the stream was scaled meanwhile, and it was sent again after a broker or the connection had failed.
        """
        self._acknowledgement.wait(timeout)
        return self._acknowledgement.pointer(self._row)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once `result` will not wait: perhaps at once, perhaps twice, in a thread that commits. The callback
        must neither wait nor raise."""
        self._acknowledgement.when_done(callback)

    def __await__(self) -> Generator[object, None, EventPointer]:
        yield from _until_done(self._acknowledgement)
        return self.result()


class BatchAck(Displayed):
    """The pending answer to a written batch. Also awaitable."""

    __slots__ = ("_acknowledgement",)

    def __init__(self, acknowledgement: Acknowledgement) -> None:
        self._acknowledgement = acknowledgement

    def _facts(self) -> Mapping[str, object]:
        events = max(self._acknowledgement.total, self._acknowledgement.accepted)
        return {"events": events, "state": "done" if self.done() else "pending"}

    def done(self) -> bool:
        """True once `result` will not wait."""
        return self._acknowledgement.done

    def result(self, timeout: float | None = None) -> tuple[EventRange, ...]:
        """Where the batch's events landed, once all are durable; by segment and offset. Raises what `Ack.result`
        raises."""
        self._acknowledgement.wait(timeout)
        return self._acknowledgement.ranges()

    @property
    def repeated(self) -> bool:
        """True if a producer had appended the batch before."""
        return self._acknowledgement.repeated

    @property
    def left_out(self) -> int:
        """How many of the batch's events are not stored, because the load policy of the stream keeps a sample."""
        return self._acknowledgement.left_out

    @property
    def error(self) -> AnabranchError | None:
        """The first refusal so far, or None."""
        return self._acknowledgement.error

    def landings(self, timeout: float | None = None) -> list[tuple[SegmentId, int, Rows]]:
        """Which of the batch's events landed where; see `Acknowledgement.landings`. Waits as `result` does."""
        self._acknowledgement.wait(timeout)
        return self._acknowledgement.landings()

    def pointer(self, row: int) -> EventPointer:
        """The pointer of the batch's event `row`; waits as `result` does."""
        self._acknowledgement.wait(None)
        return self._acknowledgement.pointer(row)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once `result` will not wait: perhaps at once, perhaps twice, in a thread that commits. The callback
        must neither wait nor raise."""
        self._acknowledgement.when_done(callback)

    def __await__(self) -> Generator[object, None, tuple[EventRange, ...]]:
        yield from _until_done(self._acknowledgement)
        return self.result()


def _until_done(acknowledgement: Acknowledgement) -> Generator[object, None, None]:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed, so there is no waiting coroutine
            loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(None))

    acknowledgement.when_done(wake)
    yield from done
