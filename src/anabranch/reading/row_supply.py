"""Takes rows from a source for one consumer, a thread or a coroutine, no faster than a rate allows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from anabranch.errors import Closed, InvalidArgument
from anabranch.model.cut import StreamCut
from anabranch.model.rate import Rate
from anabranch.reading.async_bridge import AsyncBridge
from anabranch.reading.pacing import Pacing
from anabranch.reading.row_source import RowSource, StreamDelivery
from anabranch.runtime.ports import Runtime


class RowSupply:
    """Rows that were pulled stay here until they are taken, so a cancelled coroutine loses none."""

    def __init__(self, source: RowSource, runtime: Runtime, rate: Rate | None) -> None:
        self._source = source
        self._clock = runtime.clock
        self._busy = runtime.tasks.lock()
        self._bridge = AsyncBridge(runtime.tasks, self._fill, self._wake)
        self._rest: StreamDelivery | None = None  # pulled, but held back by the rate
        self._ready: StreamDelivery | None = None  # pulled for a coroutine, but not taken yet
        self.pacing = Pacing(runtime, rate)
        self.closed = False

    @property
    def holds_rows(self) -> bool:
        """Whether rows were pulled that are not taken yet."""
        return self._rest is not None or self._ready is not None

    def check_free(self) -> None:
        """Raises Closed, and InvalidArgument while a coroutine waits."""
        if self.closed:
            raise Closed("reader")
        if self._bridge.busy:
            raise InvalidArgument("this reader already has a consumer; open another reader")

    def take(self, timeout_s: float | None, *, look: bool) -> StreamDelivery | None:
        """The next rows; see `RowSource.pull`. None after `timeout_s` seconds, at the end and once closed."""
        with self._busy:
            return self._taken() or self._pull(timeout_s, lambda: self.closed, look=look)

    async def take_async(self) -> StreamDelivery | None:
        """The next rows, waiting for them as a coroutine. None at the end and once closed."""
        if self._ready is None and not self.closed:
            with suppress(Closed):
                await self._bridge.call()
        return self._taken()

    def restart(self, start: StreamCut, *, as_events: bool) -> None:
        """Discard what was pulled; see `RowSource.restart`."""
        with self._busy:
            self._rest = self._ready = None
            self._source.restart(start, as_events=as_events)

    def skip_truncated(self, start: StreamCut, *, as_events: bool) -> tuple[StreamCut, int]:
        """Discard what was pulled; see `RowSource.skip_truncated`."""
        with self._busy:
            self._rest = self._ready = None
            return self._source.skip_truncated(start, as_events=as_events)

    def close(self) -> None:
        """End a wait, and close the source. May be called again."""
        self.closed = True
        self._bridge.close()
        self.pacing.wake()
        self._source.close()

    def _taken(self) -> StreamDelivery | None:
        delivery, self._ready = self._ready, None
        return None if self.closed else delivery

    def _fill(self, interrupted: Callable[[], bool]) -> bool:
        """Gets the next rows ready. Returns False if it was interrupted; True without rows means the end."""
        with self._busy:
            if self._ready is None:
                self._ready = self._pull(None, interrupted, look=True)
            return self._ready is not None or not interrupted()

    def _pull(self, timeout_s: float | None, interrupted: Callable[[], bool], *, look: bool) -> StreamDelivery | None:
        until = None if timeout_s is None else self._clock.monotonic() + timeout_s
        if not self.pacing.wait(until, interrupted):
            return None
        delivery, self._rest = self._rest or self._source.pull(until, interrupted, look=look), None
        if delivery is not None and self.pacing.rate is not None:
            batch = delivery.rows.batch
            delivery, self._rest = delivery.split(self.pacing.take(batch.num_rows, batch.nbytes))
        return delivery

    def _wake(self) -> None:
        self.pacing.wake()
        self._source.wake()
