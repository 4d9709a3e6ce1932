"""Watermarks of a store: up to which event time each stream is complete."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Final

from anabranch import limits
from anabranch.core.cuts import check_stream
from anabranch.core.display import Displayed
from anabranch.core.watermarks import TimeCodec, TimeState, TimeWindow, Watermark, WatermarkStatus
from anabranch.errors import InvalidArgument, ScopeNotFound, StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.seconds import check_seconds
from anabranch.runtime.ids import token
from anabranch.shared_state.revisioned_stream import RevisionedStream
from anabranch.shared_state.synchronizer import StateSynchronizer
from anabranch.store.parts import StoreContext
from anabranch.store.shared_state import SharedState
from anabranch.streams.companions.api import Companions, companion_name
from anabranch.streams.lifecycle.companions import companions
from anabranch.streams.manager import Streams
from anabranch.streams.retention.policy import Retention
from anabranch.watermarks.watermarks import Watermarks, newest_event_time

_TIMES: Final = "times"  # the companion stream that holds the times its writers noted


class StoreWatermarks(Displayed):
    """Watermarks by stream: the event time up to which a stream is complete, according to its writers."""

    def __init__(self, parts: StoreContext, streams: Streams, companions: Companions, shared: SharedState) -> None:
        self._parts = parts
        self._streams = streams
        self._companions = companions
        self._shared_state = shared
        self._lock = parts.runtime.tasks.lock()
        self._known: OrderedDict[StreamId, Watermarks] = OrderedDict()  # in the order of their last use

    def get(self, stream: str | StreamName) -> Watermark | None:
        """The time up to which the stream is complete, and the cut after which no older event follows; None if no
        writer has noted a time. A reader or a batch that ends at the cut covers a complete range of time. Raises
        StreamNotFound."""
        self._parts.check_open()
        found = self._marks(self._streams.get(stream).id)
        return None if found is None else found.latest()

    def idle(self, stream: str | StreamName, idle_s: float | None = None) -> float:
        """For how many seconds a writer of the stream may note no time before the watermark stops waiting for it: one
        minute, or the value set last. `idle_s` sets it for all writers that note times, from their next note on. A
        writer that is no longer waited for may note again at any time. Raises StreamNotFound, InvalidArgument."""
        self._parts.check_open()
        ident = self._streams.get(stream).id
        if idle_s is None:
            found = self._marks(ident)
            return (limits.TIME_IDLE_US if found is None else found.idle_us()) / 1e6
        check_seconds("idle_s", idle_s)
        if (idle_us := round(idle_s * 1e6)) <= 0:
            raise InvalidArgument(f"expected idle_s above 0, and at least 1 µs, got {idle_s}")
        self._begun(ident).set_idle(idle_us)
        return idle_s

    def status(self, stream: str | StreamName) -> WatermarkStatus:
        """The state of a stream's watermark: how far it is behind the newest event, for how long it has not advanced,
        and what each writer noted last; see `WatermarkStatus`. Raises StreamNotFound."""
        self._parts.check_open()
        view = self._streams.view(stream)
        found = self._marks(view.info.id)
        if found is None:
            return WatermarkStatus(str(view.info.name), self._parts.runtime.clock.now(), None, newest_event_time(view))
        return found.status()

    def statuses(self) -> list[WatermarkStatus]:
        """The status of every stream whose writers ever noted a time, by name."""
        self._parts.check_open()
        with self._parts.catalog.reading() as reading:
            infos = [reading.stream(stream) for stream in companions(reading)]
        found = []
        for name in sorted(info.name for info in infos if info is not None):
            with suppress(StreamNotFound):  # deleted meanwhile
                found.append(self.status(name))
        return found

    def window(self, stream: str | StreamName | StreamId, position: StreamCut) -> TimeWindow:
        """The known bounds of event time at a position; see `TimeWindow`. Raises StreamNotFound, InvalidCut."""
        self._parts.check_open()
        view = self._streams.view(stream)
        check_stream(view, position)
        found = self._marks(view.info.id)
        return TimeWindow() if found is None else found.window(position)

    def note(self, stream: StreamId, writer: str, time_us: Micros | None) -> None:
        """Note a time for a writer, or with None note that it leaves."""
        found = self._begun(stream)
        found.leave(writer) if time_us is None else found.note(writer, time_us)

    def note_commit(self, stream: StreamId, writer: str | None, time_us: Micros) -> None:
        """Note the time of a committed transaction: for a writer that continues, or with None for the transaction
        alone."""
        found = self._begun(stream)
        if writer is None:
            found.note_and_leave(token(self._parts.runtime.ids), time_us)
        else:
            found.note(writer, time_us)

    def _marks(self, stream: StreamId) -> Watermarks | None:
        """The watermarks of a stream; None if no writer ever noted a time."""
        with self._lock:
            if (known := self._known.get(stream)) is not None:
                self._known.move_to_end(stream)
                return known
        try:
            entries = self._shared_state.revisioned(companion_name(_TIMES, stream), create=False)
        except (ScopeNotFound, StreamNotFound):
            return None
        return None if entries.latest() == 0 else self._opened(stream, entries)

    def _begun(self, stream: StreamId) -> Watermarks:
        """The watermarks of a stream, created if there are none. Raises StreamNotFound."""
        known = self._marks(stream)
        if known is not None:
            return known
        kept = Retention(age_us=limits.TIMES_KEPT_US, size_min=limits.TIMES_KEPT_BYTES)
        name = self._companions.create(stream, _TIMES, retention=kept)
        return self._opened(stream, self._shared_state.revisioned(name, create=False))

    def _opened(self, stream: StreamId, entries: RevisionedStream) -> Watermarks:
        codec = TimeCodec()
        shared = StateSynchronizer(entries, self._parts.runtime, codec, TimeState(), entries_kept=None)
        made = Watermarks(shared, self._parts.catalog, self._parts.runtime, stream, codec.decode)
        with self._lock:
            found = self._known.setdefault(stream, made)
            while len(self._known) > limits.WATERMARK_STREAMS_MAX:
                self._known.popitem(last=False)
            return found
