"""The watermarks of a stream, on a revisioned stream beside it. Each entry holds the watermark as of then, so the entries are
the history of it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import watermarks as changes
from anabranch.core.cuts import before, tail_cut
from anabranch.core.watermarks import TimeState, TimeWindow, Watermark, WatermarkStatus, first_beyond, is_passed
from anabranch.errors import Truncated
from anabranch.log.view import load
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamView
from anabranch.readers.synchronizer import StateSynchronizer
from anabranch.runtime.ports import Runtime


class Watermarks:
    """What is noted of one stream. Thread-safe; any number of processes may have one. `codec` reads single entries."""

    def __init__(
        self,
        shared: StateSynchronizer[TimeState],
        catalog: Catalog,
        runtime: Runtime,
        stream: StreamId,
        decode: Callable[[bytes], TimeState],
    ) -> None:
        self._shared = shared
        self._catalog = catalog
        self._runtime = runtime
        self._stream = stream
        self._decode = decode
        self._lock = runtime.tasks.lock()
        self._passed = 0  # entries that the last position asked for has passed: where to look first

    def note(self, writer: str, time_us: Micros) -> None:
        """A writer, all of whose events are durable, notes a time. Raises InvalidArgument for one that goes back."""
        with self._lock:
            tail, now = self._tail(), self._runtime.clock.now()
            idle_us = limits.TIME_IDLE_US
            self._shared.update(lambda state: changes.note(state, writer, time_us, tail, now, idle_us=idle_us))

    def pass_by(self, writer: str, time_us: Micros) -> None:
        """A writer, all of whose events are durable, notes a time and ends."""
        with self._lock:
            tail, now = self._tail(), self._runtime.clock.now()
            idle_us = limits.TIME_IDLE_US
            self._shared.update(lambda state: changes.pass_by(state, writer, time_us, tail, now, idle_us=idle_us))

    def leave(self, writer: str) -> None:
        """A writer ends."""
        with self._lock:
            tail, now = self._tail(), self._runtime.clock.now()
            idle_us = limits.TIME_IDLE_US
            self._shared.update(lambda state: changes.leave(state, writer, tail, now, idle_us=idle_us))

    def idle_us(self) -> int:
        """For how long a writer may note nothing before it is waited for no longer."""
        with self._lock:
            state = self._shared.fetch()
        return limits.TIME_IDLE_US if state.idle_us is None else state.idle_us

    def set_idle(self, idle_us: int) -> None:
        """Say so; it counts from the next note on."""
        with self._lock:
            self._shared.update(lambda state: replace(state, idle_us=idle_us))

    def latest(self) -> Watermark | None:
        """The watermark now; None where no writer has noted a time."""
        with self._lock:
            return self._shared.fetch().mark

    def status(self) -> WatermarkStatus:
        """How it stands: how far behind, for how long, and whom it waits for. Raises StreamNotFound."""
        with self._lock:
            with self._catalog.reading() as reading:
                view = load(reading, self._stream)
            state, now = self._shared.fetch(), self._runtime.clock.now()
        return changes.status(state, str(view.info.name), newest(view), now, idle_us=limits.TIME_IDLE_US)

    def window(self, position: StreamCut) -> TimeWindow:
        """What is known of the times at a position of the stream. Costs some reads for each doubling of the entries kept.
        Raises InvalidCut."""
        with self._lock:
            while True:
                try:
                    return self._window(position)
                except Truncated:
                    continue  # the retention was faster

    def _window(self, position: StreamCut) -> TimeWindow:
        oldest, latest = self._shared.stream.oldest(), self._shared.stream.latest()
        # Loaded behind the entries, so what a mark knows of segments the view does too, unless it was truncated.
        with self._catalog.reading() as reading:
            view = load(reading, self._stream)

        def passed(entry: int) -> bool:
            mark = self._mark(entry)
            return mark is None or is_passed(view, mark, position)

        def short(entry: int) -> bool:
            mark = self._mark(entry)
            return mark is None or not before(view, position, mark.cut)

        start = self._passed if oldest < self._passed <= latest and passed(self._passed - 1) else oldest
        self._passed = first_beyond(start, latest, passed)
        further = first_beyond(self._passed, latest, short)
        lower = self._mark(self._passed - 1) if self._passed > oldest else None
        upper = self._mark(further) if further < latest else None
        return TimeWindow(None if lower is None else lower.time_us, None if upper is None else upper.latest_us)

    def _mark(self, entry: int) -> Watermark | None:
        return self._decode(next(self._shared.stream.read(entry)).value).mark

    def _tail(self) -> StreamCut:
        with self._catalog.reading() as reading:
            return tail_cut(load(reading, self._stream))


def newest(view: StreamView) -> Micros | None:
    """The greatest event time in the logs that the stream sees; None where no event has one."""
    times = [log.event_high for log in view.logs.values() if log.event_high is not None]
    return max(times, default=None)
