"""A result as a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

import pyarrow as pa

from anabranch import limits
from anabranch.cli.render.sink import Sink
from anabranch.errors import InvalidArgument

__all__ = ["Parquet"]

_ROW_GROUP_BYTES: Final = 64 * limits.MIB


class Parquet:
    """Prints a Parquet file. It is complete only when closed, since its footer comes last. In memory is one row
    group."""

    def __init__(self, schema: pa.Schema, sink: Sink) -> None:
        from pyarrow.parquet import ParquetWriter

        if sink.terminal:
            raise InvalidArgument("Parquet is binary: send it to a program, or to a file with --output")
        self._schema = schema
        self._gate = _Gate(sink.file)
        with self._writing():
            self._writer = ParquetWriter(self._gate, schema, compression="zstd")
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._rows.append(batch)
        self._bytes += batch.nbytes
        if self._bytes >= _ROW_GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        if self._rows:
            with self._writing():
                self._writer.write_table(pa.Table.from_batches(self._rows, self._schema))
            self._rows, self._bytes = [], 0

    def close(self) -> None:
        self._end_group()
        with self._writing():
            self._writer.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            with self._gate:
                yield
        except pa.ArrowNotImplementedError as exc:
            raise InvalidArgument(f"Parquet can't hold this result: {exc}") from exc


class _Gate:
    """A file that discards what is written outside of its `with` blocks. A Parquet writer that is not closed, because
    something failed, writes its footer when it is deleted: half a result would look like a whole one."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._open = False

    def write(self, data: bytes) -> int:
        return self._file.write(data) if self._open else len(data)

    def flush(self) -> None:
        if self._open:
            self._file.flush()

    def __enter__(self) -> None:
        self._open = True

    def __exit__(self, *error: object) -> None:
        self._open = False
        if error[0] is None:
            self._file.flush()
