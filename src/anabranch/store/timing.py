"""What a store offers of times: up to when a stream is complete."""

from __future__ import annotations

from typing import Final, Protocol, cast

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.watermarks import TimeCodec, TimeState, TimeWindow, Watermark
from anabranch.errors import StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.model.retention import Retention
from anabranch.readers.revisioned import RevisionedStream
from anabranch.readers.synchronizer import StateSynchronizer
from anabranch.readers.watermarks import Watermarks
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Lock
from anabranch.streams.manager import Streams

TIME_PREFIX: Final = "_time-"


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
        found = _marks(store, store.streams.get(stream).id, create=False)
        return None if found is None else found.latest()

    def time_window(self, stream: str | StreamName | StreamId, position: StreamCut) -> TimeWindow:
        """What is known of the times at a position; see `TimeWindow`. Raises StreamNotFound, InvalidCut."""
        store = cast(_Parts, self)
        store._alive()
        ident = StreamId(stream) if isinstance(stream, int) else store.streams.get(stream).id
        found = _marks(store, ident, create=False)
        return TimeWindow() if found is None else found.window(position)

    def _note_time(self, stream: StreamId, writer: str, time_us: Micros | None) -> None:
        """A writer notes a time, or with None leaves."""
        found = _marks(cast(_Parts, self), stream, create=True)
        assert found is not None, "it was made"
        found.leave(writer) if time_us is None else found.note(writer, time_us)


def _marks(store: _Parts, stream: StreamId, *, create: bool) -> Watermarks | None:
    """The watermarks of a stream, on a stream of their own beside it that bears its id, so that it may be renamed."""
    with store._lock:
        known = store._watermarks.get(stream)
    if known is not None:
        return known
    scope = store.streams.view(stream).info.name.scope
    name = StreamName(scope, f"{TIME_PREFIX}{stream:016x}")
    if create:
        kept = Retention(age_us=limits.TIMES_KEPT_US, size_min=limits.TIMES_KEPT_BYTES)
        store.streams.create(name, retention=kept, exist_ok=True)
    try:
        entries = store.revisioned(name, create=False)
    except StreamNotFound:
        return None
    if not create and entries.latest() == 0:
        return None
    codec = TimeCodec()
    shared = StateSynchronizer(entries, store.runtime, codec, TimeState(), entries_kept=None)
    made = Watermarks(shared, store.catalog, store.runtime, stream, codec.decode)
    with store._lock:
        return store._watermarks.setdefault(stream, made)
