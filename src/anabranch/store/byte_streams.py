"""Byte streams of a store: streams that are used as files."""

from __future__ import annotations

from typing import Final, Literal, Protocol, overload

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.catalog.state.byte_head import BYTE_HEAD, ByteHead
from anabranch.core.byte_stream import BYTES
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName
from anabranch.reading.byte_index import ByteIndex
from anabranch.reading.byte_reader import ByteReader, RawByteReader
from anabranch.store.parts import StoreContext
from anabranch.streams.change import Changes
from anabranch.streams.directory.find import need_info, need_view
from anabranch.streams.lifecycle.as_bytes import make_byte_stream
from anabranch.streams.manager import Streams
from anabranch.streams.requests import Result
from anabranch.writing.byte_writer import ByteWriter
from anabranch.writing.writer import Writer

_WRITER: Final = "_bytes"  # every writer of a byte stream has this name, so the next one fences it


class OpenWriter(Protocol):
    """Opens a writer of a stream, including a byte stream."""

    def __call__(self, stream: StreamId, *, writer_id: str | None = None) -> Writer: ...


class ByteStreams(Displayed):
    """Streams that are used as files of bytes."""

    def __init__(self, parts: StoreContext, streams: Streams, changes: Changes, open_writer: OpenWriter) -> None:
        self._parts = parts
        self._changes = changes
        self._streams = streams
        self._open_writer = open_writer

    @overload
    def open(self, name: str | StreamName, mode: Literal["rb"] = "rb", *, follow: bool = False) -> ByteReader: ...
    @overload
    def open(self, name: str | StreamName, mode: Literal["ab", "xb"]) -> ByteWriter: ...
    def open(
        self, name: str | StreamName, mode: Literal["rb", "ab", "xb"] = "rb", *, follow: bool = False
    ) -> ByteReader | ByteWriter:
        """Open a byte stream as a file object. `rb` reads it, `ab` appends to it and creates it if it does not exist,
        `xb` creates a new one; see `ByteReader` and `ByteWriter`. With `follow` a reader waits at the tail for more. A raw
        stream that never held an event opens too: `rb` reads it as empty, `ab` makes it a byte stream. Whoever writes
        events to it then gets Conflict, and none of them is stored.

        Raises StreamNotFound, StreamExists, ScopeNotFound, StreamSealed, and InvalidArgument if the stream holds other
        events.
        """
        self._parts.check_open()
        match mode:
            case "rb":
                return self._reader(name, follow=follow)
            case "ab" | "xb" if not follow:
                return self._writer(name, new=mode == "xb")
            case "ab" | "xb":
                raise InvalidArgument("only a reader follows a byte stream")
        raise InvalidArgument(
            f"a byte stream is opened with 'rb' to read, 'ab' to append or 'xb' to make a new one, not '{mode}'"
        )

    def _reader(self, name: str | StreamName, *, follow: bool) -> ByteReader:
        source = ByteIndex(self._parts.catalog, self._parts.logs, self._streams.get(name).id)
        reader = ByteReader(RawByteReader(source, self._parts.tail, follow=follow), on_close=self._parts.forget)
        self._parts.keep(reader)
        return reader

    def _writer(self, name: str | StreamName, *, new: bool) -> ByteWriter:
        stream = self._make(name, new=new)
        ByteIndex(
            self._parts.catalog, self._parts.logs, stream
        )  # refuses a stream of another kind before its writers are fenced
        writer = self._open_writer(stream, writer_id=_WRITER)
        try:
            source = ByteIndex(
                self._parts.catalog, self._parts.logs, stream
            )  # after the fence: no earlier writer can append any more
            made = ByteWriter(
                writer,
                name=source.name,
                position=source.tail(),
                events=source.events,
                chunk_bytes=min(limits.BYTE_CHUNK_BYTES, self._parts.runtime.settings.event_bytes_max),
                truncate_before=lambda position: self._truncate(source, position),
                on_close=self._parts.forget,
            )
        except BaseException:
            writer.close()
            raise
        self._parts.forget(writer)  # the file closes it, since it may still hold bytes for it
        self._parts.keep(made)
        return made

    def _make(self, name: str | StreamName, *, new: bool) -> StreamId:
        if not new and (present := self._streams.find(name)) is not None:
            if present.schema.raw:
                self._convert(present.id)
            return present.id
        return self._streams.create(name, schema=BYTES.columns, time=BYTES.time, exist_ok=not new).id

    def _convert(self, stream: StreamId) -> None:
        def act(txn: Writing, now: Micros) -> Result:
            make_byte_stream(txn, need_view(txn, stream, unsealed=True), now)
            return {}

        self._changes.apply(f"make {stream:016x} a byte stream", None, act, on=stream)

    def _truncate(self, source: ByteIndex, position: int) -> int:
        source.refresh()
        tail = source.tail()
        if not 0 <= position <= tail:
            raise InvalidArgument(f"'{source.name}' holds {tail} bytes; it can't be truncated at {position}")
        self._put_head(source.stream, position)  # first: whatever comes in between, nothing below it is read
        offset = source.offset_at(position)
        cut = source.cut(source.events - 1 if offset is None else offset)
        if cut is not None:
            self._streams.truncate(source.stream, cut)
        source.refresh()
        return source.head()

    def _put_head(self, stream: StreamId, position: int) -> None:
        def act(txn: Writing, _: Micros) -> Result:
            need_info(txn, stream)
            present = txn.state(BYTE_HEAD, stream)
            if position > (0 if present is None else present.position):
                txn.put_state(BYTE_HEAD, stream, ByteHead(position))
            return {}

        self._changes.apply(f"truncate bytes of {stream:016x}", None, act, on=stream)
