"""Byte streams (`anabranch.store.byte_streams`) as verbs, by id. Bytes are read with `ByteReadCommand`, and appended
with an `AppendCommand` that has a `byte_fence`."""

from __future__ import annotations

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.model.ids import StreamId
from anabranch.store.facade import Store
from anabranch.wire.verbs.needs import stream
from anabranch.wire.verbs.verb import StoreVerb


def open_bytes(store: Store, stream: str) -> StreamId:
    """The id of a byte stream. Raises StreamNotFound, and InvalidArgument for a stream of another kind."""
    return store._byte_streams.index(store.streams.get(stream).id).stream


def state(store: Store, stream: StreamId) -> tuple[str, bool, int, int]:
    """The stream's name; whether it is sealed; the position after the last byte; and that up to which bytes were
    truncated that may still be in a chunk."""
    source = store._byte_streams.index(stream)
    return source.name, source.sealed, source.tail(), source.truncated_before


def head(store: Store, stream: StreamId) -> int:
    """See `ByteReader.head`."""
    return store._byte_streams.index(stream).head()


def wait(store: Store, stream: StreamId, tail: int, wait_s: float) -> None:
    """Return once there may be bytes after `tail`, or the stream is sealed; at the latest after `wait_s` seconds, at most
    `limits.REMOTE_WAIT_S`."""
    if not wait_s >= 0:
        raise InvalidArgument(f"expected wait_s as a number of seconds of at least 0, got {wait_s}")
    clock, waiting = store.runtime.clock, store.internals.tail
    source = store._byte_streams.index(stream)
    until = clock.monotonic() + min(wait_s, limits.REMOTE_WAIT_S)
    while (left := until - clock.monotonic()) > 0:
        seen = waiting.generation()
        source.refresh()
        if source.tail() > tail or source.sealed:
            return
        waiting.wait(seen, left)


def claim(store: Store, stream: str) -> tuple[StreamId, str, int, int, int, int]:
    """Claim a byte stream for its one writer, which fences off the one before. Returns its id and name, how many bytes
    and events it has had, the fence for `AppendCommand.byte_fence`, and the most bytes of one event. Raises
    StreamNotFound, StreamSealed, and InvalidArgument for a stream of another kind."""
    writer, source = store._byte_streams.claim(store.streams.get(stream).id)
    with writer:
        chunk_bytes = store._byte_streams.chunk_bytes
        return source.stream, source.name, source.tail(), source.events, writer.claimed, chunk_bytes


def truncate_before(store: Store, stream: StreamId, position: int) -> int:
    """See `ByteWriter.truncate_before`."""
    return store._byte_streams.truncate_before(stream, position)


BYTE_VERBS = (
    StoreVerb("bytes.claim", stream("write", "stream"), run=claim),
    StoreVerb("bytes.head", stream("read", "stream"), run=head, changes=False),
    StoreVerb("bytes.open", stream("read", "stream"), run=open_bytes, changes=False),
    StoreVerb("bytes.state", stream("read", "stream"), run=state, changes=False),
    StoreVerb("bytes.truncate_before", stream("manage", "stream"), run=truncate_before),
    StoreVerb("bytes.wait", stream("read", "stream"), run=wait, changes=False),
)
