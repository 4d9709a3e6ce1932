"""History (`anabranch.store.history`) as verbs, by the stream's id, which stays the same when it is renamed. The events
themselves are read with `RangeReadCommand`."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.model.cut import HEAD, TAIL, StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamInfo
from anabranch.model.time_kind import TimeKind
from anabranch.reading.bounds import Place, to_cut
from anabranch.reading.history.ranges import SegmentPartRange
from anabranch.store.facade import Store
from anabranch.wire.verbs.needs import stream
from anabranch.wire.verbs.verb import StoreVerb


def open_history(store: Store, stream: str) -> StreamInfo:
    """The stream whose history is to be read. See `Store.history`."""
    store.history(stream)
    return store.streams.get(stream)


def ranges(
    store: Store,
    stream: StreamId,
    start: Place = HEAD,
    end: Place = TAIL,
    by: TimeKind = "append",
    bytes_max: int = limits.HISTORY_RANGE_BYTES,
) -> list[SegmentPartRange]:
    """See `History.ranges`."""
    found = store._history.ranges(stream, start, end, by, bytes_max)
    return [SegmentPartRange(each.stream, each.segment, each.start, each.stop, each.size) for each in found]


def cut(store: Store, stream: StreamId, place: Place, by: TimeKind = "append") -> StreamCut:
    """The cut at a place: before the first event at or after it. See `anabranch.reading.bounds.to_cut`."""
    return to_cut(store.internals.logs, store.streams.view(stream), place, by=by)


def version(store: Store, stream: StreamId, segment: SegmentId, start: int) -> int:
    """The stream's schema version. Raises Truncated if the event at `start` of the segment is gone."""
    return store._history.version(SegmentPartRange(stream, segment, start, start, 0))


_READ: Final = stream("read", "stream")

HISTORY_VERBS: Final = (
    StoreVerb("history.cut", _READ, run=cut, changes=False),
    StoreVerb("history.open", _READ, run=open_history, changes=False),
    StoreVerb("history.ranges", _READ, run=ranges, changes=False),
    StoreVerb("history.version", _READ, run=version, changes=False),
)
