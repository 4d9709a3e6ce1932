"""The watermarks of a stream, stored on a companion revisioned stream. Each entry holds the watermark at that time, so
the entries are also its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core import watermarks as changes
from anabranch.core.cuts import is_before, tail_cut
from anabranch.core.watermarks import TimeState, TimeWindow, Watermark, WatermarkStatus, first_not_passed, is_passed
from anabranch.errors import Truncated
from anabranch.log.view import load
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.stream import StreamView
from anabranch.runtime.ports import Runtime
from anabranch.shared_state.synchronizer import StateSynchronizer


class Watermarks:
    """The watermarks of one stream. Thread-safe; any number of processes may have one. `decode` decodes a single
    entry."""

    def __init__(
        self,
        synchronizer: StateSynchronizer[TimeState],
        catalog: Catalog,
        runtime: Runtime,
        stream: StreamId,
        decode: Callable[[bytes], TimeState],
    ) -> None:
        self._synchronizer = synchronizer
        self._catalog = catalog
        self._runtime = runtime
        self._stream = stream
        self._decode = decode
        self._lock = runtime.tasks.lock()
        self._first_not_passed = 0  # for the last requested position; the next search starts here

    def note(self, writer: str, time_us: Micros) -> None:
        """Note a time for a writer whose events so far are all durable. Raises InvalidArgument for a time before its
        last."""
        with self._lock:
            tail, now = self._tail(), self._runtime.clock.now()
            idle_us = limits.TIME_IDLE_US
            self._synchronizer.update(lambda state: changes.note(state, writer, time_us, tail, now, idle_us=idle_us))

    def note_and_leave(self, writer: str, time_us: Micros) -> None:
        """Note a time for a writer whose events so far are all durable, and end the writer."""
        with self._lock:
            tail, now = self._tail(), self._runtime.clock.now()
            idle_us = limits.TIME_IDLE_US
            self._synchronizer.update(
                lambda state: changes.note_and_leave(state, writer, time_us, tail, now, idle_us=idle_us)
            )

    def leave(self, writer: str) -> None:
        """End a writer."""
        with self._lock:
            tail, now = self._tail(), self._runtime.clock.now()
            idle_us = limits.TIME_IDLE_US
            self._synchronizer.update(lambda state: changes.leave(state, writer, tail, now, idle_us=idle_us))

    def idle_us(self) -> int:
        """How long a writer may note nothing before watermarks stop waiting for it, in µs."""
        with self._lock:
            state = self._synchronizer.fetch()
        return limits.TIME_IDLE_US if state.idle_us is None else state.idle_us

    def set_idle(self, idle_us: int) -> None:
        """Set how long a writer may note nothing, in µs; it applies from the next note on."""
        with self._lock:
            self._synchronizer.update(lambda state: replace(state, idle_us=idle_us))

    def latest(self) -> Watermark | None:
        """The current watermark; None where no writer has noted a time."""
        with self._lock:
            return self._synchronizer.fetch().watermark

    def status(self) -> WatermarkStatus:
        """The watermark's status: how far behind it is, for how long, and which writers it waits for. Raises
        StreamNotFound."""
        with self._lock:
            with self._catalog.reading() as reading:
                view = load(reading, self._stream)
            state, now = self._synchronizer.fetch(), self._runtime.clock.now()
        return changes.status(state, str(view.info.name), newest_event_time(view), now, idle_us=limits.TIME_IDLE_US)

    def window(self, position: StreamCut) -> TimeWindow:
        """The event-time window at a position of the stream. Costs some reads for each doubling of the entries kept.
        Raises InvalidCut."""
        with self._lock:
            while True:
                try:
                    return self._window(position)
                except Truncated:
                    continue  # retention truncated the entries in between

    def _window(self, position: StreamCut) -> TimeWindow:
        oldest, latest = self._synchronizer.stream.oldest(), self._synchronizer.stream.latest()
        # Loaded after the entries, so the view has every segment of their cuts, unless it was truncated.
        with self._catalog.reading() as reading:
            view = load(reading, self._stream)

        def passed(entry: int) -> bool:
            watermark = self._watermark(entry)
            return watermark is None or is_passed(view, watermark, position)

        def before_position(entry: int) -> bool:
            watermark = self._watermark(entry)
            return watermark is None or not is_before(view, position, watermark.cut)

        start = (
            self._first_not_passed
            if oldest < self._first_not_passed <= latest and passed(self._first_not_passed - 1)
            else oldest
        )
        self._first_not_passed = first_not_passed(start, latest, passed)
        upper_entry = first_not_passed(self._first_not_passed, latest, before_position)
        lower = self._watermark(self._first_not_passed - 1) if self._first_not_passed > oldest else None
        upper = self._watermark(upper_entry) if upper_entry < latest else None
        return TimeWindow(None if lower is None else lower.time_us, None if upper is None else upper.latest_us)

    def _watermark(self, entry: int) -> Watermark | None:
        return self._decode(next(self._synchronizer.stream.read(entry)).value).watermark

    def _tail(self) -> StreamCut:
        with self._catalog.reading() as reading:
            return tail_cut(load(reading, self._stream))


def newest_event_time(view: StreamView) -> Micros | None:
    """The greatest event time in the stream's logs; None where no event has one."""
    times = [log.event_high for log in view.logs.values() if log.event_high is not None]
    return max(times, default=None)
