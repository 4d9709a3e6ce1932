"""Parquet files, and Arrow IPC files and streams."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import add
from typing import IO

import pyarrow as pa

from anabranch.cli.intake.batch import ADDED, BadRow, IntakeBatch, without_added
from anabranch.cli.intake.columns import TargetColumns
from anabranch.cli.intake.source import IntakeSource
from anabranch.cli.intake.times import NotATime, TimeReading, times_of
from anabranch.core.ipc_bounds import open_bounded, open_bounded_pipe
from anabranch.errors import CorruptBlob, InvalidArgument
from anabranch.log.parquet.bounds import bounded_batches, columns_of
from anabranch.model.schema import StreamSchema


class TypedIntake:
    """The batches of a file that has columns and types of its own. Rows are counted from 1."""

    def __init__(self, name: str, columns: pa.Schema, batches: Iterator[pa.RecordBatch], times: TimeReading) -> None:
        self._name = name
        self._columns = columns
        self._batches = batches
        self._times = times

    def schema(self, *, skip_bad: bool = False) -> pa.Schema:
        """The file's columns, without those that reading adds."""
        return pa.schema([field for field in self._columns if field.name not in ADDED])

    def batches(self, columns: TargetColumns) -> Iterator[IntakeBatch | BadRow]:
        """The rows, in order. Raises InvalidArgument."""
        if columns.grow:
            columns.add(self.schema())
        with _read_errors(self._name):
            yield from _counted(self._batches, columns.schema, self._times)


def open_parquet(source: IntakeSource, times: TimeReading) -> TypedIntake:
    """A Parquet file. Raises InvalidArgument."""
    with _read_errors(source.name):
        data = _mapped(source.seekable())
        columns = columns_of(source.name, data)
        return TypedIntake(source.name, columns, bounded_batches(source.name, data, columns.names), times)


def open_arrow(source: IntakeSource, times: TimeReading) -> TypedIntake:
    """An Arrow IPC stream, which may be a pipe, or an IPC file. Raises InvalidArgument."""
    with _read_errors(source.name):
        if source.size is not None:
            batches = open_bounded(_mapped(source.seekable()))
        else:
            batches = open_bounded_pipe(_Reads(source).read)
        return TypedIntake(source.name, batches.schema, iter(batches), times)


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
                yield IntakeBatch(valid, "row", partial(add, first))
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
