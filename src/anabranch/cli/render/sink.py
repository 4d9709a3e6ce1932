"""What the formats share: where a result goes, and what prints its batches."""

from __future__ import annotations

from typing import IO, NamedTuple, Protocol

import pyarrow as pa

__all__ = ["Renderer", "Sink", "TextRenderer"]


class Sink(NamedTuple):
    """Where a result is printed."""

    file: IO[bytes]
    terminal: bool = False


class Renderer(Protocol):
    """Prints the batches of one result, in order; each is flushed when `write` returns, but for Parquet, which is
    flushed by row groups."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Prints one batch."""
        ...

    def close(self) -> None:
        """Prints the end of the result."""
        ...


class TextRenderer:
    """Prints text. On stdout it goes through the text stream's buffer, so that bytes and text stay in order."""

    def __init__(self, sink: Sink) -> None:
        self._out, self._terminal = sink

    def put(self, text: str) -> None:
        """Print text, and flush it."""
        self._out.write(text.encode("utf-8", "surrogateescape"))
        self._out.flush()
