"""Writing a byte stream as a file."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch import limits
from anabranch.core.byte_stream import chunks
from anabranch.errors import AnabranchError
from anabranch.streams.writer import Writer

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ByteWriter(io.BufferedIOBase):
    """A byte stream as a file that is open for appending. For one thread at a time.

    `write` takes bytes into a buffer; `flush` returns once all of them are durable, and only durable bytes are read.
    A stream has one writer: the one opened last. Whatever an earlier one tries then raises Fenced, and none of it is
    written. After an error nothing more is taken: what is durable ends somewhere in what was not flushed, without a hole.
    Open the stream again, and go on from its `tell`.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        name: str,
        position: int,
        events: int,
        chunk_bytes: int,
        truncate_before: Callable[[int], int],
        on_close: Callable[[ByteWriter], None],
    ) -> None:
        """`writer` holds the fence already; the stream `name` has `events` events and `position` bytes."""
        super().__init__()
        self.name = name
        self._writer = writer
        self._position = position  # behind what was handed to the writer
        self._events = events
        self._chunk_bytes = chunk_bytes
        self._gathered = bytearray()
        self._failed: AnabranchError | None = None
        self._truncate_before = truncate_before
        self._on_close = on_close

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next byte, with all that was written before it."""
        self._open()
        return self._position + len(self._gathered)

    def write(self, data: ReadableBuffer, /) -> int:
        """Take all of the bytes; blocks while too much is not durable yet. Raises what an earlier write failed with."""
        self._open()
        if self._failed is not None:
            raise self._failed
        left = memoryview(data).cast("B")
        count = len(left)
        while len(left):
            room = limits.BYTE_GATHERED_BYTES - len(self._gathered)
            self._gathered += left[:room]
            left = left[room:]
            if len(self._gathered) == limits.BYTE_GATHERED_BYTES:
                self._hand_over()
        return count

    def flush(self) -> None:
        """Return once every byte written so far is durable. Raises Fenced where the stream was opened by another writer,
        StreamSealed, and whatever else an append can raise."""
        self._open()
        if self._failed is not None:
            raise self._failed
        self._hand_over()
        try:
            self._writer.flush()
        except AnabranchError as exc:
            self._failed = exc
            raise

    def truncate(self, size: int | None = None, /) -> int:
        """Bytes that were appended stay, so this does nothing at the end of the file, and elsewhere raises
        io.UnsupportedOperation. To let go of the beginning there is `truncate_before`."""
        end = self.tell()
        if size is not None and size != end:
            raise io.UnsupportedOperation(
                f"the end of a byte stream can't be cut; truncate_before({size}) lets go of its beginning"
            )
        return end

    def truncate_before(self, position: int) -> int:
        """Let go of bytes before `position`, for ever, and return the head now. Chunks go as a whole, and the last one
        stays, so the head may be up to a chunk (1 MiB) before it. Flushes first. Raises InvalidArgument behind the end."""
        self.flush()
        return self._truncate_before(position)

    def close(self) -> None:
        """Flush, then take no more. A second close is harmless. Raises as `flush`."""
        if self.closed:
            return
        try:
            super().close()
        finally:
            try:
                self._writer.close()
            finally:
                self._on_close(self)

    def _hand_over(self) -> None:
        if not self._gathered:
            return
        table = chunks(memoryview(bytes(self._gathered)), self._position, chunk_bytes=self._chunk_bytes)
        try:
            # Behind one that was refused the condition holds for none, so nothing lands behind a hole.
            self._writer.write_batch(table, expected=self._events)
        except AnabranchError as exc:
            self._failed = exc
            raise
        self._events += table.num_rows
        self._position += len(self._gathered)
        self._gathered.clear()

    def _open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
