"""Parquet files, and Arrow IPC files and streams."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from anabranch.cli.intake.batch import BadRow, IntakeBatch, without_added
from anabranch.cli.intake.source import IntakeSource
from anabranch.cli.intake.times import NotATime, TimeReading, times_of
from anabranch.core.ipc_bounds import open_bounded, open_bounded_pipe
from anabranch.errors import CorruptBlob, InvalidArgument
from anabranch.log.parquet.bounds import bounded_batches, columns_of
from anabranch.model.schema import StreamSchema


class ParquetIntake:
    """A Parquet file. Rows are counted from 1."""

    def __init__(self, source: IntakeSource) -> None:
        self._name = source.name
        with _read_errors(self._name):
            self._data = _mapped(source.seekable())
            self._schema = columns_of(self._name, self._data)

    def schema(self) -> pa.Schema:
        """The file's columns."""
        return self._schema

    def batches(self, schema: StreamSchema, times: TimeReading) -> Iterator[IntakeBatch | BadRow]:
        """The rows, in order."""
        with _read_errors(self._name):
            yield from _counted(bounded_batches(self._name, self._data, self._schema.names), schema, times)


class ArrowIntake:
    """An Arrow IPC stream, which may be a pipe, or an IPC file. Rows are counted from 1."""

    def __init__(self, source: IntakeSource) -> None:
        self._name = source.name
        with _read_errors(self._name):
            if source.size is not None:
                self._batches = open_bounded(_mapped(source.seekable()))
            else:
                self._batches = open_bounded_pipe(_Reads(source).read)

    def schema(self) -> pa.Schema:
        """The stream's columns."""
        return self._batches.schema

    def batches(self, schema: StreamSchema, times: TimeReading) -> Iterator[IntakeBatch | BadRow]:
        """The rows, in order."""
        with _read_errors(self._name):
            yield from _counted(iter(self._batches), schema, times)


class _Reads:
    """Reads of an exact size from a source."""

    def __init__(self, source: IntakeSource) -> None:
        self._source = source
        self._held = b""

    def read(self, size: int) -> bytes:
        """Returns exactly `size` bytes, fewer only at the end."""
        parts, missing = [self._held], size - len(self._held)
        while missing > 0 and (data := self._source.read()):
            parts.append(data)
            missing -= len(data)
        whole = b"".join(parts)
        self._held = whole[size:]
        return whole[:size]


def _counted(
    batches: Iterator[pa.RecordBatch], schema: StreamSchema, times: TimeReading
) -> Iterator[IntakeBatch | BadRow]:
    first = 1
    for batch in batches:
        rows = without_added(pa.Table.from_batches([batch]))
        while rows.num_rows:
            try:
                valid = times_of(rows, schema, times)
            except NotATime as exc:
                valid = times_of(rows.slice(0, exc.row), schema, times)
                bad: BadRow | None = BadRow("row", first + exc.row, str(exc), values=rows.slice(exc.row, 1))
            else:
                bad = None
            if valid.num_rows:
                yield IntakeBatch(valid, "row", lambda row, first=first: first + row)  # type: ignore[misc]
            if bad is not None:
                yield bad
            done = valid.num_rows + (bad is not None)
            rows, first = rows.slice(done), first + done


def _mapped(file: IO[bytes]) -> pa.Buffer:
    """Returns a file's bytes, memory-mapped. Raises OSError."""
    try:
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError as exc:  # an empty file can't be mapped
        raise OSError("the file is empty") from exc


@contextmanager
def _read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidArgument:
        raise
    except CorruptBlob as exc:
        raise InvalidArgument(f"{name} can't be read: {exc.reason}") from exc
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise InvalidArgument(f"{name} can't be read: {exc}") from exc
