"""Writing a byte stream as a file."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Protocol

from anabranch import limits
from anabranch.core.byte_stream import chunks
from anabranch.core.display import Displayed
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import ReadableBuffer


class ChunkWriter(Protocol):
    """The writer that has claimed a byte stream."""

    def write_batch(self, data: pa.Table, *, expected: int) -> object:
        """See `Writer.write_batch`."""
        ...

    def flush(self) -> None:
        """See `Writer.flush`."""
        ...

    def close(self) -> None:
        """See `Writer.close`."""
        ...


class ByteWriter(Displayed, io.BufferedIOBase):
    """A byte stream as a file that is open for appending. For one thread at a time.

    `write` takes bytes into a buffer; `flush` returns once all of them are durable, and only durable bytes are read. A
    stream has one writer: the one opened last. Any write by an earlier writer then raises Fenced, and nothing of it is
    stored. After an error nothing more is accepted. Of the bytes that were not flushed, some from the beginning may be
    durable, without a gap. Open the stream again, and continue from its `tell`."""

    def __init__(
        self,
        writer: ChunkWriter,
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
        self._position = position  # after what was handed to the writer
        self._events = events
        self._chunk_bytes = chunk_bytes
        self._gathered = bytearray()
        self._failed: AnabranchError | None = None  # it was raised
        self._closing = False
        self._truncate_before = truncate_before
        self._on_close = on_close

    def _facts(self) -> Mapping[str, object]:
        return {
            "stream": self.name,
            "state": "closed" if self.closed else "open",
            "bytes": self._position + len(self._gathered),
        }

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next byte, after all that was written."""
        self._open()
        return self._position + len(self._gathered)

    def write(self, data: ReadableBuffer, /) -> int:
        """Accept all of the bytes; blocks while too much is not durable yet. Raises the error of an earlier failed
        write."""
        self._open()
        if self._failed is not None:
            raise self._failed
        given = memoryview(data)
        if not given.nbytes:  # an empty array of several dimensions has no other form
            return 0
        left = given.cast("B")
        count = len(left)
        while len(left):
            room = limits.BYTE_GATHERED_BYTES - len(self._gathered)
            self._gathered += left[:room]
            left = left[room:]
            if len(self._gathered) == limits.BYTE_GATHERED_BYTES:
                self._hand_over()
        return count

    def flush(self) -> None:
        """Return once every byte written so far is durable. Raises Fenced where the stream was opened by another
        writer, StreamSealed, and whatever else an append can raise."""
        self._open()
        if self._failed is not None:
            if self._closing:
                return
            raise self._failed
        self._hand_over()
        try:
            self._writer.flush()
        except AnabranchError as exc:
            self._failed = exc
            raise

    def truncate(self, size: int | None = None, /) -> int:
        """Appended bytes can't be cut off: does nothing at the end of the file, and elsewhere raises
        io.UnsupportedOperation. To remove the beginning, use `truncate_before`."""
        end = self.tell()
        if size is not None and size != end:
            raise io.UnsupportedOperation(
                f"the end of a byte stream can't be removed; truncate_before({size}) removes its beginning"
            )
        return end

    def truncate_before(self, position: int) -> int:
        """Remove bytes before `position`, permanently, and return the new head: `position`, or the head if that is
        later. Whole chunks are freed; the bytes before `position` in its chunk (1 MiB at most) can't be read as a file
        any more. Flushes first. Raises InvalidArgument after the end."""
        self.flush()
        return self._truncate_before(position)

    def close(self) -> None:
        """Flush, then accept no more. A second close is harmless. Raises what `flush` raises, unless a write or a flush
        has raised it already."""
        if self.closed:
            return
        self._closing = True
        try:
            super().close()
        finally:
            try:
                with suppress(AnabranchError) if self._failed is not None else nullcontext():
                    self._writer.close()
            finally:
                self._on_close(self)

    def _hand_over(self) -> None:
        if not self._gathered:
            return
        table = chunks(bytes(self._gathered), self._position, chunk_bytes=self._chunk_bytes)
        try:
            # After a refused batch the condition holds for no other, so nothing is appended after a gap.
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
