"""What a reader of a group is to the application, whether its group is in this process or held by a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

import pyarrow as pa

from anabranch.core.display import Displayed
from anabranch.errors import Closed, InvalidArgument
from anabranch.groups.ports import StoredPositions
from anabranch.model.event import Event
from anabranch.model.seconds import wait_limit
from anabranch.reading.async_bridge import AsyncBridge
from anabranch.runtime.tasks import Tasks

B = TypeVar("B")


class GroupConsumer(Displayed, Generic[B]):
    """Hands out events, or batches `B` as a whole, and is closed. Subclasses get the batches."""

    def __init__(self, tasks: Tasks, wake: Callable[[], None]) -> None:
        """`wake` ends a wait in `_wait_until`, which then calls `interrupted`."""
        self._closed = False
        self._on_checkpoint: list[Callable[[str], None]] = []
        self._prefetched: B | None = None  # pulled for a coroutine, but not handed out yet
        self._bridge = AsyncBridge(tasks, self._prefetch, wake)

    def on_checkpoint(self, callback: Callable[[str], None]) -> None:
        """Call `callback` with a checkpoint's name when the reader reaches it: between two batches, in the thread that
        requests the next event or batch. All events handed out before lie before the checkpoint."""
        self._on_checkpoint.append(callback)

    # events and batches

    def __iter__(self) -> Iterator[Event]:
        """The events, until the group's end, or forever. Raises Closed."""
        self._require_idle()
        return self._events()

    def __aiter__(self) -> AsyncIterator[Event]:
        """Like `__iter__`, for coroutines; the event loop is never blocked. Raises Closed."""
        self._require_idle()
        return self._events_async()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as `pa.RecordBatch`es: the stream's columns, then `_segment` (int64, `SegmentId.packed`), `_offset`
        and `_appended`. Each holds rows of one segment, in offset order; the metadata `stream` of its schema names the
        stream. Raises Closed."""
        self._require_idle()
        while (batch := self._wait(None)) is not None:
            yield self._whole(batch)

    def read(self, timeout_s: float = 0.0) -> pa.RecordBatch | None:
        """The next batch; None if there is none within `timeout_s` seconds, or at the group's end. Raises Closed,
        InvalidArgument."""
        limit_s = wait_limit("timeout_s", timeout_s)
        self._require_idle()
        batch = self._wait(limit_s)
        return None if batch is None else self._whole(batch)

    def _events(self) -> Iterator[Event]:
        while True:
            yield from self._current_events()
            if self._wait(None) is None:
                return

    async def _events_async(self) -> AsyncIterator[Event]:
        while True:
            for event in self._current_events():
                yield event
            if self._prefetched is None and not self._closed:
                with suppress(Closed):
                    await self._bridge.call()
            batch, self._prefetched = self._prefetched, None
            if batch is None or self._closed:
                return

    def _wait(self, timeout_s: float | None) -> B | None:
        return self._wait_until(timeout_s, lambda: self._closed)

    def _prefetch(self, interrupted: Callable[[], bool]) -> bool:
        if self._prefetched is None:
            self._prefetched = self._wait_until(None, lambda: self._closed or interrupted())
        return self._prefetched is not None or not interrupted()

    def _require_idle(self) -> None:
        if self._bridge.busy:
            raise InvalidArgument("this reader is being read by another consumer; open another reader")
        if self._closed:
            raise Closed("reader")

    # from the subclass

    def _current_events(self) -> Iterator[Event]:
        """The events of the current batch that are still to be handed out."""
        raise NotImplementedError

    def _wait_until(self, timeout_s: float | None, interrupted: Callable[[], bool]) -> B | None:
        """The next batch, which becomes the current one; None at the end, after the time, or once interrupted."""
        raise NotImplementedError

    def _whole(self, batch: B) -> pa.RecordBatch:
        """The current batch, handed out as a whole."""
        raise NotImplementedError

    def _close(self, *, done: bool) -> None:
        """Leave the group; `done`: what was handed out is processed."""
        raise NotImplementedError

    # closing

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._closed

    def close(self) -> None:
        """Leave the group: processed events are accepted, and other readers take over the segments at once. A second
        close is harmless; after an interrupted one it does the remaining steps. Raises nothing where the group has
        already removed this reader."""
        self._close(done=True)

    def abandon(self) -> None:
        """Leave the group without accepting the last event or batch handed out, as after an error."""
        self._close(done=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(done=error is None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(done=error is None)


def check_positions(positions: StoredPositions | None, delivery: str) -> None:
    """Raise InvalidArgument for stored positions with a delivery mode that can't use them."""
    if positions is not None and delivery != "exactly_once":
        raise InvalidArgument(f"positions= requires delivery='exactly_once', got '{delivery}'")
