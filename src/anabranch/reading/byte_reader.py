"""Reads a byte stream as a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from anabranch import limits
from anabranch.errors import Closed, InvalidArgument, Truncated
from anabranch.reading.byte_index import ByteChunk

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

R = TypeVar("R")


class ByteSource(Protocol):
    """The bytes of one stream; see `ByteIndex`, which is one."""

    @property
    def name(self) -> str: ...
    @property
    def sealed(self) -> bool: ...
    @property
    def truncated_before(self) -> int: ...
    def refresh(self) -> None: ...
    def head(self) -> int: ...
    def tail(self) -> int: ...
    def chunks_at(self, position: int) -> Iterator[ByteChunk]: ...


class ByteTail(Protocol):
    """Waits for more; see `anabranch.log.tail.Tail`, which is one."""

    def generation(self) -> int: ...
    def notify(self) -> None: ...
    def wait(self, since: int, timeout_s: float | None = None) -> bool: ...


class RawByteReader(io.RawIOBase):
    """The unbuffered bytes, from which `ByteReader` reads."""

    def __init__(self, source: ByteSource, tail: ByteTail, *, follow: bool) -> None:
        super().__init__()
        self.source = source
        self.name = source.name
        self._tail = tail
        self._follow = follow
        self._stopped = False
        self._position = source.head()
        self._chunk: ByteChunk | None = None
        self._ahead: Iterator[ByteChunk] = iter(())

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next byte."""
        self._open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Moves to a position; reads nothing yet. The end is the present tail. Raises InvalidArgument below 0."""
        self._open()
        match whence:
            case io.SEEK_SET:
                position = offset
            case io.SEEK_CUR:
                position = self._position + offset
            case io.SEEK_END:
                self.source.refresh()
                position = self.source.tail() + offset
            case _:
                raise InvalidArgument(f"expected whence 0, 1 or 2, got {whence}")
        if position < 0:
            raise InvalidArgument(f"expected a position of at least 0 in a byte stream, got {position}")
        self._position = position
        return position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fills part of the buffer: at least one byte, or none at the tail.

        With `follow`, waits for more bytes at the tail until the stream is sealed.
        """
        self._open()
        target = memoryview(buffer).cast("B")
        if not len(target):
            return 0
        chunk = self._chunk
        first = 0 if chunk is None else max(chunk.start, self.source.truncated_before)
        if chunk is None or not first <= self._position < chunk.stop:
            chunk = self._chunk = self._find()
            if chunk is None:
                return 0
        begin = self._position - chunk.start
        count = min(len(target), chunk.stop - self._position)
        target[:count] = memoryview(chunk.data).cast("B")[begin : begin + count]
        self._position += count
        return count

    def stop(self) -> None:
        """Ends a waiting read of a follower, which then raises Closed."""
        self._stopped = True
        self._tail.notify()

    def close(self) -> None:
        """Closes the file. May be called again."""
        super().close()
        self._chunk, self._ahead = None, iter(())

    def _find(self) -> ByteChunk | None:
        """The chunk of the next byte, or None at the tail."""
        previous, self._chunk = self._chunk, None  # after an error, what is ahead need not follow it
        if previous is not None and self._position == previous.stop:
            following = next(self._ahead, None)
            if following is not None and self._position >= self.source.truncated_before:
                return following
        if not self._await_byte():
            return None
        self._ahead = self.source.chunks_at(self._position)
        chunk = next(self._ahead)
        head = max(chunk.start, self.source.truncated_before)
        if self._position < head:
            raise Truncated(self.source.name, {"byte": head})
        return chunk

    def _await_byte(self) -> bool:
        """True if there is a byte at the position; with `follow`, first waits for one."""
        while True:
            seen = self._tail.generation()
            self.source.refresh()
            if self._position < self.source.tail():
                return True
            if not self._follow or self.source.sealed:
                return False
            self._tail.wait(seen, limits.BYTE_WAIT_S)
            if self._stopped:
                raise Closed("byte reader")

    def _open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")


class ByteReader(io.BufferedReader):
    """A byte stream as a file that is open for reading. It begins at the present head and ends at the present tail.
    What is appended later is returned by later reads; with `follow`, a read at the tail waits for it until the stream
    is sealed.

    Positions count bytes, from 0 for the first that was ever written, whatever was truncated since. Reading below the
    head raises Truncated. After an error the position is that from before the call.
    """

    def __init__(self, raw: RawByteReader, *, on_close: Callable[[ByteReader], None]) -> None:
        super().__init__(raw, limits.BYTE_BUFFER_BYTES)
        self._on_close = on_close

    def read(self, size: int | None = -1, /) -> bytes:
        """See `io.BufferedReader.read`."""
        return self._whole(partial(super().read, size))

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """See `io.BufferedReader.readinto`."""
        return self._whole(partial(super().readinto, buffer))

    def readline(self, size: int | None = -1, /) -> bytes:
        """See `io.BufferedReader.readline`."""
        return self._whole(partial(super().readline, size))

    def readlines(self, hint: int = -1, /) -> list[bytes]:
        """See `io.BufferedReader.readlines`."""
        return self._whole(partial(super().readlines, hint))

    def head(self) -> int:
        """The position of the first byte that can be read."""
        source = self._fresh()
        return source.head()

    def tail(self) -> int:
        """The position after the last durable byte."""
        source = self._fresh()
        return source.tail()

    def close(self) -> None:
        """Closes the file; a thread that waits for more gets Closed. May be called again."""
        cast(RawByteReader, self.raw).stop()  # first, because closing waits for a thread that is reading
        try:
            super().close()
        finally:
            self._on_close(self)

    def _whole(self, read: Callable[[], R]) -> R:
        """What `read` returns. If it fails, Python drops the bytes that it had read until then; the next call reads
        them again."""
        before = self.tell()
        try:
            return read()
        except BaseException:
            with suppress(ValueError):  # it was closed meanwhile
                self.seek(before)
            raise

    def _fresh(self) -> ByteSource:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        source = cast(RawByteReader, self.raw).source
        source.refresh()
        return source
