"""Byte streams of a store: streams that are used as files."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.catalog.state.streams import BYTE_HEAD, ByteHead
from anabranch.core.byte_stream import BYTES
from anabranch.core.closeable import closed_on_error
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.reading.byte_index import ByteIndex
from anabranch.reading.byte_reader import ByteReader, RawByteReader
from anabranch.store.byte_files import ByteFiles
from anabranch.store.parts import StoreContext
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.lifecycle.evolve import make_byte_stream
from anabranch.streams.manager import Streams
from anabranch.writing.byte_writer import ByteWriter
from anabranch.writing.writer import Writer

_WRITER: Final = "_bytes"  # every writer of a byte stream has this name, so the next one fences it


class OpenWriter(Protocol):
    """Opens a writer of a stream, including a byte stream."""

    def __call__(self, stream: StreamId, *, writer_id: str | None = None, resumed: int | None = None) -> Writer: ...


class ClaimedBytes(NamedTuple):
    """A byte stream that its one writer has claimed; `source` is as of the claim. No earlier writer can append any
    more."""

    writer: Writer
    source: ByteIndex


class ByteStreams(ByteFiles):
    """Byte streams of a store that is open here."""

    def __init__(self, parts: StoreContext, streams: Streams, changes: Changes, open_writer: OpenWriter) -> None:
        self._parts = parts
        self._changes = changes
        self._streams = streams
        self._open_writer = open_writer

    def index(self, stream: StreamId) -> ByteIndex:
        """Where its bytes are. Raises StreamNotFound, and InvalidArgument for a stream of another kind."""
        return ByteIndex(self._parts.catalog, self._parts.logs, stream)

    @property
    def chunk_bytes(self) -> int:
        """The most bytes that one event holds."""
        return min(limits.BYTE_CHUNK_BYTES, self._parts.runtime.settings.event_bytes_max)

    def claim(self, stream: StreamId, *, resumed: int | None = None) -> ClaimedBytes:
        """Open the stream's writer, which fences off the previous one; with `resumed`, the fence of an earlier claim,
        as the same owner. A raw stream becomes a byte stream. Raises what opening a writer raises, InvalidArgument for
        a stream of another kind, and Fenced where it was claimed since."""
        if self._streams.get(stream).schema.raw:
            self._convert(stream)
        self.index(stream)  # refuses a stream of another kind before its writers are fenced
        writer = self._open_writer(stream, writer_id=_WRITER, resumed=resumed)
        with closed_on_error(writer):
            return ClaimedBytes(writer, self.index(stream))

    def append_to(self, stream: StreamId) -> ByteWriter:
        """Open a byte stream to append to it. Raises as `claim`."""
        writer, source = self.claim(stream)
        with closed_on_error(writer):
            made = ByteWriter(
                writer,
                name=source.name,
                position=source.tail(),
                events=source.events,
                chunk_bytes=self.chunk_bytes,
                truncate_before=lambda position: self.truncate_before(stream, position),
                on_close=self._parts.forget,
            )
        self._parts.forget(writer)  # the file closes it, since it may still hold bytes for it
        self._parts.keep(made)
        return made

    def truncate_before(self, stream: StreamId, position: int) -> int:
        """See `ByteWriter.truncate_before`."""
        source = self.index(stream)
        tail = source.tail()
        if not 0 <= position <= tail:
            raise InvalidArgument(f"'{source.name}' holds {tail} bytes; it can't be truncated at {position}")
        self._put_head(stream, position)  # first, so that nothing below it is read whatever happens in between
        offset = source.offset_at(position)
        cut = source.cut(source.events - 1 if offset is None else offset)
        if cut is not None:
            self._streams.truncate(stream, cut)
        source.refresh()
        return source.head()

    def _check_open(self) -> None:
        self._parts.check_open()

    def _reader(self, name: str | StreamName, *, follow: bool) -> ByteReader:
        source = self.index(self._streams.get(name).id)
        reader = ByteReader(RawByteReader(source, self._parts.tail, follow=follow), on_close=self._parts.forget)
        self._parts.keep(reader)
        return reader

    def _writer(self, name: str | StreamName, *, new: bool) -> ByteWriter:
        return self.append_to(self._make(name, new=new))

    def _make(self, name: str | StreamName, *, new: bool) -> StreamId:
        if not new and (present := self._streams.find(name)) is not None:
            return present.id
        return self._streams.create(name, schema=BYTES.columns, time=BYTES.time, exist_ok=not new).id

    def _convert(self, stream: StreamId) -> None:
        def act(txn: Writing, now: Micros) -> None:
            make_byte_stream(txn, need_view(txn, stream, unsealed=True), now)

        self._changes.apply(f"make {stream:016x} a byte stream", None, act, on=stream)

    def _put_head(self, stream: StreamId, position: int) -> None:
        def act(txn: Writing, _: Micros) -> None:
            need_info(txn, stream)
            present = txn.state(BYTE_HEAD, stream)
            if position > (0 if present is None else present.position):
                txn.put_state(BYTE_HEAD, stream, ByteHead(position))

        self._changes.apply(f"truncate bytes of {stream:016x}", None, act, on=stream)
