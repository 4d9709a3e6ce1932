"""What became of events that were written: one shared state per chunk of events, and light handles on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from anabranch.errors import AnabranchError
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer

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


class ChunkState:
    """Events accepted together by a writer, and where each of them landed."""

    __slots__ = ("_callbacks", "_errors", "_landings", "_places", "_waiter", "settled", "stream", "total")

    def __init__(self, stream: StreamId, waiter: Waiter) -> None:
        self.stream = stream
        self.total = -1  # not known before the chunk is closed
        self.settled = 0
        self._waiter = waiter
        self._landings: list[tuple[SegmentId, int, Rows]] = []
        self._errors: list[tuple[AnabranchError, Rows]] = []
        self._places: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """True once every event is durable or refused."""
        return self.settled == self.total

    # by the writer, under its lock

    def land(self, segment: SegmentId, start: int, rows: Rows) -> None:
        """The events `rows` (their numbers in the chunk) got the offsets from `start` on."""
        self._landings.append((segment, start, rows))
        self._settle(len(rows))

    def fail(self, error: AnabranchError, rows: Rows) -> None:
        """The events `rows` were refused."""
        self._errors.append((error, rows))
        self._settle(len(rows))

    def give_up(self, total: int, error: AnabranchError) -> None:
        """All of `total` events, none of which has got anywhere, are refused."""
        self.total = total
        self._errors.clear()
        self.settled = 0
        self.fail(error, np.arange(total))

    def _settle(self, count: int) -> None:
        self.settled += count
        if self.done:
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback()

    # by those who wait

    def wait(self, timeout_s: float | None) -> None:
        """Return once done. Raises TimeoutError."""
        if not self.done and not self._waiter.wait(lambda: self.done, timeout_s) and not self.done:
            raise TimeoutError("the append is not durable yet")

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once done, perhaps at once, in whichever thread finds it out."""
        self._callbacks.append(callback)
        if self.done and callback in self._callbacks:
            self._callbacks.remove(callback)
            callback()

    def pointer(self, row: int) -> EventPointer:
        """Where event `row` landed. Raises what it was refused with; IndexError where there is no such row."""
        if not 0 <= row < self.total:
            raise IndexError(f"there is no row {row} among {self.total}")
        if self._errors:
            for error, rows in self._errors:
                if row in rows:
                    raise error.with_traceback(None)  # else each raising of it would add to its traceback
        if len(self._landings) == 1 and not self._errors:
            segment, start, _ = self._landings[0]  # all of them, in order
            return EventPointer(self.stream, segment, start + row)
        if self._places is None:
            segments, offsets = np.zeros(self.total, np.int64), np.zeros(self.total, np.int64)
            for segment, start, rows in self._landings:
                segments[rows] = segment.packed
                offsets[rows] = np.arange(start, start + len(rows))
            self._places = segments, offsets
        segments, offsets = self._places
        return EventPointer(self.stream, SegmentId.unpack(int(segments[row])), int(offsets[row]))

    def ranges(self) -> tuple[EventRange, ...]:
        """Where the events landed. Raises what the first refused part was refused with."""
        if self._errors:
            raise self._errors[0][0].with_traceback(None)
        return tuple(sorted(EventRange(segment, start, start + len(rows)) for segment, start, rows in self._landings))

    @property
    def error(self) -> AnabranchError | None:
        """The first refusal, or None."""
        return self._errors[0][0] if self._errors else None


class Ack:
    """The pending answer to one written event. Also awaitable."""

    __slots__ = ("_row", "_state")

    def __init__(self, state: ChunkState, row: int) -> None:
        self._state = state
        self._row = row

    def done(self) -> bool:
        """True once `result` will not wait."""
        return self._state.done

    def result(self, timeout: float | None = None) -> EventPointer:
        """The event's pointer, once it is durable.

        Raises what the append was refused with, AppendUncertain where its outcome is unknown, TimeoutError after
        `timeout` seconds (it may still become durable).
        """
        self._state.wait(timeout)
        return self._state.pointer(self._row)

    def __await__(self) -> Generator[object, None, EventPointer]:
        yield from _until_done(self._state)
        return self.result()


class BatchAck:
    """The pending answer to a written batch. Also awaitable."""

    __slots__ = ("_state",)

    def __init__(self, state: ChunkState) -> None:
        self._state = state

    def done(self) -> bool:
        """True once `result` will not wait."""
        return self._state.done

    def result(self, timeout: float | None = None) -> tuple[EventRange, ...]:
        """Where the batch's events landed, once all are durable; by segment and offset. Raises as `Ack.result`."""
        self._state.wait(timeout)
        return self._state.ranges()

    def pointer(self, row: int) -> EventPointer:
        """The pointer of the batch's event `row`; waits as `result` does."""
        self._state.wait(None)
        return self._state.pointer(row)

    def __await__(self) -> Generator[object, None, tuple[EventRange, ...]]:
        yield from _until_done(self._state)
        return self.result()


def _until_done(state: ChunkState) -> Generator[object, None, None]:
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def wake() -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(lambda: None if done.done() else done.set_result(None))

    state.when_done(wake)
    yield from done
