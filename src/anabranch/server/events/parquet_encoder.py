"""Encodes batches as a Parquet file, bit by bit."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


class ParquetEncoder:
    """A file of batches of one schema. Each call returns the bytes that have come to the file since the last one."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = _Pipe()
        self._writer: Any = pq.ParquetWriter(self._sink, schema)

    def write(self, batch: pa.RecordBatch) -> bytes:
        """Add a batch."""
        self._writer.write_batch(batch)
        return self._sink.take()

    def end(self) -> bytes:
        """Complete the file."""
        self._writer.close()
        return self._sink.take()


class _Pipe(io.RawIOBase):
    """A file that is only written to; what was written is taken out again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def take(self) -> bytes:
        """What was written since the last call."""
        found = b"".join(self._parts)
        self._parts.clear()
        return found
