"""The state of a Durable Stream at one moment, and its offsets as text."""

from __future__ import annotations

from typing import Final, NamedTuple

from anabranch.errors import Conflict, StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId
from anabranch.model.stream import StreamInfo
from anabranch.reading.bounds import to_cut
from anabranch.server.http.durable_streams.config import StreamConfig, config_of_tags, until_of
from anabranch.server.http.durable_streams.forks import StreamGone, delete, has_forks, is_deleted
from anabranch.server.http.durable_streams.offsets import offset_text
from anabranch.server.http.front import HttpFront

_TOUCH_PARTS: Final = 20  # a deadline is stored again once it would move by 1/20 of the TTL


class DurableStream(NamedTuple):
    """A stream at one moment: `head` and `tail` are the offsets of its first and of its next event."""

    info: StreamInfo
    config: StreamConfig
    segment: SegmentId
    head: int
    tail: int

    @property
    def closed(self) -> bool:
        """True if nothing more can be appended."""
        return self.info.sealed

    def cut(self, offset: int) -> StreamCut:
        """The offset as a cut."""
        return StreamCut.of(self.info.id, {self.segment: offset})

    def tail_headers(self, *, closing: bool = False) -> dict[str, str]:
        """`Stream-Next-Offset`, and `Stream-Closed` if it is, or was closed by now."""
        closed = {"Stream-Closed": "true"} if closing or self.closed else {}
        return {"Stream-Next-Offset": offset_text(self.tail), **closed}


def load(front: HttpFront, name: str) -> DurableStream:
    """The stream as of now; one whose time is over is deleted. Raises StreamNotFound, and Conflict for a stream that this
    protocol can't serve: one with columns or with several segments. Raises StreamGone for a deleted one that still has forks."""
    view = front.store.streams.view(name)
    info = view.info
    if is_deleted(info) and has_forks(front.store, info.id):
        raise StreamGone(name)
    until = until_of(info.tags)
    if is_deleted(info) or (until is not None and until <= front.store.runtime.clock.now()):
        whole = delete(front.store, info.id)
        front.names.forget(name)
        raise StreamNotFound(name) if whole else StreamGone(name)
    if not info.schema.raw or len(view.segments) != 1:
        raise Conflict(f"'{name}' is not a Durable Stream: it has columns, or more than one segment")
    logs = front.store.internals.logs
    (segment, head), (_, tail) = *to_cut(logs, view, "head"), *to_cut(logs, view, "tail")
    return DurableStream(info, config_of_tags(info.tags), segment, head, tail)


def touch(front: HttpFront, stream: DurableStream) -> None:
    """Note that the stream was read or appended to: its TTL starts again."""
    ttl, until = stream.config.ttl_s, until_of(stream.info.tags)
    if ttl is None or until is None:
        return
    now = front.store.runtime.clock.now()
    if now + ttl * 1_000_000 - until > ttl * 1_000_000 // _TOUCH_PARTS:
        front.store.streams.tag(stream.info.id, {**stream.info.tags, **stream.config.tags(now)})
