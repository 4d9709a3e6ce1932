"""What a store offers of times: up to when a stream is complete."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol, cast

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.watermarks import TimeCodec, TimeState, TimeWindow, Watermark, WatermarkStatus
from anabranch.errors import InvalidArgument, ScopeNotFound, StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.retention import Retention
from anabranch.readers.revisioned import RevisionedStream
from anabranch.readers.synchronizer import StateSynchronizer
from anabranch.readers.watermarks import Watermarks, newest
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Lock
from anabranch.streams.companion import companions
from anabranch.streams.companions import companion_name
from anabranch.streams.manager import Streams

_TIMES: Final = "times"  # the companion of a stream that holds what its writers noted


class _Parts(Protocol):
    """What of a store the calls below are made of."""

    catalog: Catalog
    runtime: Runtime
    streams: Streams
    _watermarks: dict[StreamId, Watermarks]
    _lock: Lock

    def _alive(self) -> None: ...
    def revisioned(self, name: str | StreamName, *, create: bool = True) -> RevisionedStream: ...


class Timing:
    """The part of `Store` that deals with watermarks."""

    def watermark(self, stream: str | StreamName) -> Watermark | None:
        """Up to which time the stream is complete, and the cut behind which nothing older follows; None where no writer has
        noted a time. A reader or a batch that ends at the cut sees a whole span of time. Raises StreamNotFound."""
        store = cast(_Parts, self)
        store._alive()
        found = _marks(store, store.streams.get(stream).id)
        return None if found is None else found.latest()

    def watermark_idle(self, stream: str | StreamName, idle_s: float | None = None) -> float:
        """For how many seconds a writer of the stream may note no time before the watermark waits for it no longer: a minute,
        or what was said last. With `idle_s` it is said, for all who note; it counts from the next note on. A writer that was
        not waited for may note again at any time. Raises StreamNotFound, InvalidArgument."""
        store = cast(_Parts, self)
        store._alive()
        ident = store.streams.get(stream).id
        if idle_s is None:
            found = _marks(store, ident)
            return (limits.TIME_IDLE_US if found is None else found.idle_us()) / 1e6
        if not idle_s > 0:
            raise InvalidArgument(f"a writer is idle after some time, not after {idle_s} s")
        _begun(store, ident).set_idle(round(idle_s * 1e6))
        return idle_s

    def watermark_status(self, stream: str | StreamName) -> WatermarkStatus:
        """How the watermark of a stream stands: how far it is behind the newest event, for how long it has not advanced, and
        what each writer noted last; see `WatermarkStatus`. Raises StreamNotFound."""
        store = cast(_Parts, self)
        store._alive()
        view = store.streams.view(stream)
        found = _marks(store, view.info.id)
        if found is None:
            return WatermarkStatus(str(view.info.name), store.runtime.clock.now(), None, newest(view))
        return found.status()

    def watermark_statuses(self) -> list[WatermarkStatus]:
        """The same of all streams whose writers ever noted a time, by name."""
        store = cast(_Parts, self)
        store._alive()
        with store.catalog.reading() as reading:
            infos = [reading.stream(stream) for stream in companions(reading)]
        found = []
        for name in sorted(info.name for info in infos if info is not None):
            with suppress(StreamNotFound):  # it was deleted meanwhile
                found.append(self.watermark_status(name))
        return found

    def time_window(self, stream: str | StreamName | StreamId, position: StreamCut) -> TimeWindow:
        """What is known of the times at a position; see `TimeWindow`. Raises StreamNotFound, InvalidCut."""
        store = cast(_Parts, self)
        store._alive()
        found = _marks(store, store.streams.view(stream).info.id)
        return TimeWindow() if found is None else found.window(position)

    def _note_time(self, stream: StreamId, writer: str, time_us: Micros | None) -> None:
        """A writer notes a time, or with None leaves."""
        found = _begun(cast(_Parts, self), stream)
        found.leave(writer) if time_us is None else found.note(writer, time_us)

    def _note_commit(self, stream: StreamId, writer: str | None, time_us: Micros) -> None:
        """A transaction that is committed notes a time: for a writer that goes on, or with None for itself alone."""
        store = cast(_Parts, self)
        found = _begun(store, stream)
        if writer is None:
            found.pass_by(token(store.runtime.ids), time_us)
        else:
            found.note(writer, time_us)


def _marks(store: _Parts, stream: StreamId) -> Watermarks | None:
    """The watermarks of a stream; None where no writer ever noted a time."""
    with store._lock:
        known = store._watermarks.get(stream)
    if known is not None:
        return known
    try:
        entries = store.revisioned(companion_name(_TIMES, stream), create=False)
    except (ScopeNotFound, StreamNotFound):
        return None
    return None if entries.latest() == 0 else _opened(store, stream, entries)


def _begun(store: _Parts, stream: StreamId) -> Watermarks:
    """The same, made where there are none. Raises StreamNotFound."""
    known = _marks(store, stream)
    if known is not None:
        return known
    kept = Retention(age_us=limits.TIMES_KEPT_US, size_min=limits.TIMES_KEPT_BYTES)
    name = store.streams.make_companion(stream, _TIMES, retention=kept)
    return _opened(store, stream, store.revisioned(name, create=False))


def _opened(store: _Parts, stream: StreamId, entries: RevisionedStream) -> Watermarks:
    codec = TimeCodec()
    shared = StateSynchronizer(entries, store.runtime, codec, TimeState(), entries_kept=None)
    made = Watermarks(shared, store.catalog, store.runtime, stream, codec.decode)
    with store._lock:
        return store._watermarks.setdefault(stream, made)
