"""Views of streams, loaded whole once and then kept fresh cheaply."""

from __future__ import annotations

from dataclasses import replace

from anabranch.catalog.port import Reading
from anabranch.core import cuts
from anabranch.errors import StreamNotFound
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.stream import StreamView


def load(reading: Reading, stream: StreamId) -> StreamView:
    """The stream as of this snapshot. Raises StreamNotFound."""
    view = reading.view(stream)
    if view is None:
        raise StreamNotFound(f"{stream:016x}")
    return view


def respanned(reading: Reading, view: StreamView) -> StreamView:
    """The stream with the heads and spans of this snapshot: `view` itself, whose lengths may be older, unless the stream was
    changed otherwise than by appends. One look-up. Raises StreamNotFound.

    Whoever looks into logs at another moment than the view's asks for it first: a segment may have been flattened since, and
    the logs that it had may be collected.
    """
    info = reading.stream(view.info.id)
    if info is None:
        raise StreamNotFound(str(view.info.name))
    return view if info.version == view.info.version else load(reading, info.id)


def readable(reading: Reading, view: StreamView, segment: SegmentId, offset: int) -> StreamView:
    """The same, where the segment can still be read from `offset` on. Raises Truncated too."""
    fresh = respanned(reading, view)
    if cuts.below_head(fresh, {segment: offset}):
        raise cuts.truncated(fresh)
    return fresh


def refresh(reading: Reading, view: StreamView) -> StreamView:
    """The same stream as of this snapshot; `view` itself if nothing was appended or changed.

    Segments and spans are read again only if the stream's version rose, else the lengths of its open logs alone.
    Raises StreamNotFound.
    """
    info = reading.stream(view.info.id)
    if info is None:
        raise StreamNotFound(str(view.info.name))
    if info.version != view.info.version:
        return load(reading, info.id)
    if info.sealed:
        return view
    followed = [log for segment in view.current if (log := view.open_log(segment.id)) is not None]
    logs = reading.logs(followed) if followed else {}
    if all(view.logs[log].length == state.length for log, state in logs.items()):
        return view
    return replace(view, info=info, logs={**view.logs, **logs})
