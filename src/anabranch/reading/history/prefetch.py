"""Reads ranges ahead of their consumer, several in parallel, and returns them in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import pyarrow as pa

from anabranch import limits
from anabranch.core.closeable import Closeable
from anabranch.errors import Closed, InvalidArgument
from anabranch.model.pointer import EventPointer
from anabranch.reading.async_bridge import AsyncBridge
from anabranch.reading.history.cache import Batches
from anabranch.reading.history.ranges import SegmentPartRange
from anabranch.runtime.tasks import Task, Tasks

P = TypeVar("P", bound=SegmentPartRange)


class Prefetch(Closeable, Generic[P]):
    """Yields the batches of ranges, in the order of the ranges, with `for` or `async for`; for one consumer.

    `fetchers` tasks read ahead, at most `window` ranges beyond the current one and while the held ranges have at most
    `bytes_max` logical bytes; the current range is always fetched. So a slow consumer throttles them, and memory stays
    within `bytes_max`, or one range if that is larger. All three settings may be changed while it runs. An error of a
    fetch is raised in the place of its range. If iteration continues, this range and all others that have failed are
    fetched again.
    """

    def __init__(
        self,
        tasks: Tasks,
        parts: Sequence[P],
        fetch: Callable[[P], Batches],
        *,
        window: int,
        fetchers: int,
        bytes_max: int,
        on_close: Callable[[Prefetch[P]], None] | None = None,
    ) -> None:
        self._tasks = tasks
        self._parts = tuple(parts)
        self._fetch = fetch
        self._on_close = on_close
        self._changed = tasks.condition()
        self._window = _at_least(0, window, "window")
        self._fetchers = _at_least(1, fetchers, "number of fetchers")
        self._bytes_max = _at_least(0, bytes_max, "bound in bytes")
        self._place = 0  # the current range, or the next one
        self._begun = 0  # how many of its batches were handed out
        self._ready: dict[int, Batches | BaseException] = {}
        self._under_way: set[int] = set()
        self._running: set[Task] = set()
        self._active = 0
        self._closed = False
        self._pump = AsyncBridge(tasks, self._await, self._wake)

    # inspecting and setting

    @property
    def parts(self) -> tuple[P, ...]:
        """All its ranges."""
        return self._parts

    @property
    def place(self) -> int:
        """The number of the current or next range; `len(parts)` at the end."""
        return self._place

    @property
    def held_bytes(self) -> int:
        """The logical bytes of the ranges that are held or being fetched."""
        with self._changed:
            return self._held()

    @property
    def window(self) -> int:
        """How many ranges beyond the current one are fetched; 0 fetches each when it is requested."""
        return self._window

    @window.setter
    def window(self, ranges: int) -> None:
        self._set(window=_at_least(0, ranges, "window"))

    @property
    def fetchers(self) -> int:
        """How many ranges are fetched in parallel."""
        return self._fetchers

    @fetchers.setter
    def fetchers(self, count: int) -> None:
        self._set(fetchers=_at_least(1, count, "number of fetchers"))

    @property
    def bytes_max(self) -> int:
        """How many logical bytes may be held."""
        return self._bytes_max

    @bytes_max.setter
    def bytes_max(self, size: int) -> None:
        self._set(bytes_max=_at_least(0, size, "bound in bytes"))

    def seek(self, place: int | EventPointer) -> None:
        """Continues at the range of this number, or at the beginning of the one that holds an event. Ranges of the
        window from there on are kept. Raises InvalidArgument if there is no such range."""
        number = place if isinstance(place, int) else self._number_of(place)
        if not 0 <= number <= len(self._parts):
            raise InvalidArgument(f"no range {number}; the history has {len(self._parts)}, counted from 0")
        with self._changed:
            self._place, self._begun = number, 0
            self._trim()
            self._start()
            self._changed.notify_all()

    def empty(self) -> None:
        """Drops what was read ahead, except the current range; the cache may still keep it."""
        with self._changed:
            self._ready = {number: held for number, held in self._ready.items() if number == self._place}
            self._start()

    # consuming

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while not self._over():
            self._await(lambda: False)
            yield from self._take()

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        while not self._over():
            try:
                await self._pump.call()
            except Closed:
                return
            for batch in self._take():
                yield batch

    def close(self) -> None:
        """Stops, and waits for the fetches under way. Iterations end. May be called again."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._ready.clear()
            running = list(self._running)
            self._changed.notify_all()
        self._pump.close()
        for task in running:
            task.join(limits.TASK_END_S)
        if self._on_close is not None:
            self._on_close(self)

    # the work

    def _await(self, interrupted: Callable[[], bool]) -> bool:
        """Waits until there is a batch to take, or nothing more to come; returns False if interrupted before."""
        with self._changed:
            while not self._over():
                self._start()
                held = self._ready.get(self._place)
                if held is None:
                    if interrupted():
                        return False
                    self._changed.wait()
                elif isinstance(held, BaseException):
                    self._trim()
                    raise held
                elif self._begun < len(held):
                    return True
                else:
                    del self._ready[self._place]
                    self._place, self._begun = self._place + 1, 0
            return True

    def _take(self) -> Batches:
        """The next batch, alone, or none if a `seek` came in between. Only the consumer calls this, so no batch is
        lost when a coroutine is cancelled."""
        with self._changed:
            held = self._ready.get(self._place, ())
            if isinstance(held, BaseException) or self._begun >= len(held):
                return ()
            self._begun += 1
            return held[self._begun - 1 : self._begun]

    def _over(self) -> bool:
        return self._closed or self._place == len(self._parts)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _set(self, *, window: int | None = None, fetchers: int | None = None, bytes_max: int | None = None) -> None:
        with self._changed:
            self._window = self._window if window is None else window
            self._fetchers = self._fetchers if fetchers is None else fetchers
            self._bytes_max = self._bytes_max if bytes_max is None else bytes_max
            self._trim()
            self._start()

    # needs the lock

    def _start(self) -> None:
        """Starts the fetches for which there is room, the next ones first."""
        for number in range(self._place, min(self._place + self._window + 1, len(self._parts))):
            if self._active >= self._fetchers or self._closed:
                return
            if number in self._ready or number in self._under_way:
                continue
            if number != self._place and self._held() + self._parts[number].size > self._bytes_max:
                return
            self._spawn(number)

    def _spawn(self, number: int) -> None:
        task: Task | None = None

        def work() -> None:
            self._work(number)
            with self._changed:
                if task is not None:
                    self._running.discard(task)

        task = self._tasks.spawn("prefetch", work)
        self._active += 1
        self._under_way.add(number)
        self._running.add(task)

    def _work(self, number: int) -> None:
        found: Batches | BaseException
        try:
            found = self._fetch(self._parts[number])
        except BaseException as exc:
            found = exc
        with self._changed:
            self._active -= 1
            self._under_way.discard(number)
            if not self._closed and self._wanted(number):
                self._ready[number] = found
            self._changed.notify_all()
            with suppress(RuntimeError):  # no thread can be started now: the consumer tries again, and gets the error
                self._start()

    def _wanted(self, number: int) -> bool:
        return self._place <= number <= self._place + self._window

    def _trim(self) -> None:
        """Drops what is no longer needed, and failures, which are tried again."""
        self._ready = {
            number: held
            for number, held in self._ready.items()
            if self._wanted(number) and not isinstance(held, BaseException)
        }

    def _held(self) -> int:
        return sum(self._parts[number].size for number in self._ready.keys() | self._under_way)

    def _number_of(self, pointer: EventPointer) -> int:
        for number, part in enumerate(self._parts):
            if (part.stream, part.segment) == (
                pointer.stream,
                pointer.segment,
            ) and part.start <= pointer.offset < part.stop:
                return number
        raise InvalidArgument(f"none of the ranges holds the event {pointer}")


def _at_least(least: int, value: int, what: str) -> int:
    if not isinstance(value, int) or value < least:
        raise InvalidArgument(f"expected the {what} as an integer of at least {least}, got {value!r}")
    return value
