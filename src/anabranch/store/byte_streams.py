"""What a store offers of bytes: streams that are files."""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, cast, overload

from anabranch import limits
from anabranch.catalog.port import Catalog
from anabranch.core.byte_stream import BYTES
from anabranch.errors import InvalidArgument
from anabranch.log.read import LogReader
from anabranch.log.tail import Tail
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.readers.byte_map import ByteMap
from anabranch.readers.byte_reader import ByteReader, RawByteReader
from anabranch.runtime.ports import Runtime
from anabranch.streams.byte_writer import ByteWriter
from anabranch.streams.manager import Streams
from anabranch.streams.writer import Writer

_WRITER: Final = "_bytes"  # every writer of a byte stream bears this name, so that the next one fences it off


class _Parts(Protocol):
    """What of a store the calls below are made of."""

    catalog: Catalog
    runtime: Runtime
    streams: Streams
    _logs: LogReader
    _tail: Tail

    def _alive(self) -> None: ...
    def _keep(self, each: Any) -> None: ...
    def _forget(self, each: Any) -> None: ...
    def _writer(self, stream: StreamId, *, writer_id: str | None = None) -> Writer: ...


class ByteStreams:
    """The part of `Store` that deals with bytes."""

    @overload
    def bytes(self, name: str | StreamName, mode: Literal["rb"] = "rb", *, follow: bool = False) -> ByteReader: ...
    @overload
    def bytes(self, name: str | StreamName, mode: Literal["ab", "xb"]) -> ByteWriter: ...
    def bytes(
        self, name: str | StreamName, mode: Literal["rb", "ab", "xb"] = "rb", *, follow: bool = False
    ) -> ByteReader | ByteWriter:
        """A stream of bytes as a file object: `rb` reads it, `ab` appends to it and makes it where there is none, `xb`
        makes a new one; see `ByteReader` and `ByteWriter`. With `follow` a reader waits at the tail for more.

        Raises StreamNotFound, StreamExists, ScopeNotFound, StreamSealed, and InvalidArgument where the stream holds
        events of another kind.
        """
        store = cast(_Parts, self)
        store._alive()
        match mode:
            case "rb":
                return _reader(store, name, follow=follow)
            case "ab" | "xb" if not follow:
                return _writer(store, name, new=mode == "xb")
            case "ab" | "xb":
                raise InvalidArgument("only a reader follows a byte stream")
        raise InvalidArgument(
            f"a byte stream is opened with 'rb' to read, 'ab' to append or 'xb' to make a new one, not '{mode}'"
        )


def _reader(store: _Parts, name: str | StreamName, *, follow: bool) -> ByteReader:
    source = ByteMap(store.catalog, store._logs, store.streams.get(name).id)
    reader = ByteReader(RawByteReader(source, store._tail, follow=follow), on_close=store._forget)
    store._keep(reader)
    return reader


def _writer(store: _Parts, name: str | StreamName, *, new: bool) -> ByteWriter:
    stream = _make(store, name, new=new)
    ByteMap(store.catalog, store._logs, stream)  # refuses a stream of another kind before its writers are disturbed
    writer = store._writer(stream, writer_id=_WRITER)
    try:
        source = ByteMap(store.catalog, store._logs, stream)  # behind the fence: no earlier writer appends any more
        made = ByteWriter(
            writer,
            name=source.name,
            position=source.tail(),
            events=source.events,
            chunk_bytes=min(limits.BYTE_CHUNK_BYTES, store.runtime.settings.event_bytes_max),
            truncate_before=lambda position: _truncate(store, source, position),
            on_close=store._forget,
        )
    except BaseException:
        writer.close()
        raise
    store._forget(writer)  # closed by the file, which has bytes for it
    store._keep(made)
    return made


def _make(store: _Parts, name: str | StreamName, *, new: bool) -> StreamId:
    if not new and (present := store.streams.find(name)) is not None:
        return present.id
    return store.streams.create(name, schema=BYTES.columns, time=BYTES.time, exist_ok=not new).id


def _truncate(store: _Parts, source: ByteMap, position: int) -> int:
    source.refresh()
    tail = source.tail()
    if not 0 <= position <= tail:
        raise InvalidArgument(f"'{source.name}' holds {tail} bytes; it can't be truncated at {position}")
    offset = source.offset_at(position)
    cut = source.cut(source.events - 1 if offset is None else offset)
    if cut is not None:
        store.streams.truncate(source.name, cut)
        source.refresh()
    return source.head()
