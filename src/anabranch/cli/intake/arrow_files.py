"""Parquet files, and Arrow IPC files and streams."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch import limits
from anabranch.cli.intake.batch import Batch, without_added
from anabranch.cli.intake.source import Source
from anabranch.errors import InvalidArgument

_FILE_MAGIC = b"ARROW1"


class ParquetIntake:
    """A Parquet file. Rows are counted from 1."""

    def __init__(self, source: Source) -> None:
        self._name = source.name
        with _read_errors(self._name):
            self._file = pq.ParquetFile(source.seekable())

    def schema(self) -> pa.Schema:
        """The file's columns."""
        return self._file.schema_arrow

    def batches(self) -> Iterator[Batch]:
        """The rows, in order."""
        with _read_errors(self._name):
            yield from _counted(self._file.iter_batches(limits.READ_ROWS_MAX))


class ArrowIntake:
    """An Arrow IPC stream, which may be a pipe, or an IPC file. Rows are counted from 1."""

    def __init__(self, source: Source) -> None:
        self._name = source.name
        with _read_errors(self._name):
            if source.size is not None:
                whole = source.seekable()
                magic = whole.read(len(_FILE_MAGIC))
                whole.seek(0)
                if magic == _FILE_MAGIC:
                    file = pa.ipc.open_file(whole)
                    self._schema = file.schema
                    self._batches = (file.get_batch(i) for i in range(file.num_record_batches))
                    return
                stream = pa.ipc.open_stream(whole)
            else:
                stream = pa.ipc.open_stream(_AsFile(source))
            self._schema, self._batches = stream.schema, iter(stream)

    def schema(self) -> pa.Schema:
        """The stream's columns."""
        return self._schema

    def batches(self) -> Iterator[Batch]:
        """The rows, in order."""
        with _read_errors(self._name):
            yield from _counted(self._batches)


class _AsFile:
    """A source as a file for Arrow."""

    closed = False

    def __init__(self, source: Source) -> None:
        self._source = source
        self._held = b""

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes, fewer only at the end."""
        parts, missing = [self._held], size - len(self._held)
        while missing > 0 and (data := self._source.read()):
            parts.append(data)
            missing -= len(data)
        whole = b"".join(parts)
        self._held = whole[size:]
        return whole[:size]

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Never."""
        return False

    def close(self) -> None:
        """The source is closed by its owner."""


def _counted(batches: Iterator[pa.RecordBatch]) -> Iterator[Batch]:
    first = 1
    for batch in batches:
        yield Batch(without_added(pa.Table.from_batches([batch])), partial(_row, first))
        first += batch.num_rows


def _row(first: int, row: int) -> str:
    return f"row {first + row:,}"


@contextmanager
def _read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as exc:
        raise InvalidArgument(f"{name} can't be read: {exc}") from exc
