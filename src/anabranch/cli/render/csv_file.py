"""A result as CSV."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from anabranch.cli.render.sink import Sink, TextRenderer
from anabranch.cli.render.values import dump, interval_text, is_bytes, iso_array
from anabranch.core.bytes_text import bytes_to_text
from anabranch.core.python_values import python_values
from anabranch.core.terminal import terminal_text

__all__ = ["Csv"]

_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


class Csv(TextRenderer):
    """Prints CSV with a header. Text is quoted, null is empty; nested values are JSON; intervals are as
    DuckDB writes them; bytes that are not UTF-8 are base64 after `base64:`. CSV has no escapes, so on a terminal control characters are replaced by their names."""

    def __init__(self, schema: pa.Schema, sink: Sink) -> None:
        super().__init__(sink)
        header = pa.record_batch([pa.array([], pa.string()) for _ in schema], names=schema.names)
        self._write(header, header=True)

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_flat(column) for column in batch.columns]
        self._write(pa.record_batch(columns, names=batch.schema.names), header=False)

    def _write(self, batch: pa.RecordBatch, *, header: bool) -> None:
        sink = pa.BufferOutputStream()
        pa.csv.write_csv(batch, sink, pa.csv.WriteOptions(include_header=header))
        if self._terminal:
            self.put(terminal_text(sink.getvalue().to_pybytes().decode("utf-8", "surrogateescape"), lines=True))
            return
        self._out.write(sink.getvalue())
        self._out.flush()

    def close(self) -> None:
        pass


def _flat(column: pa.Array) -> pa.Array:
    """Returns a column in a form that CSV can hold."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return iso_array(column)
    if is_bytes(kind):
        return pa.array([None if value is None else bytes_to_text(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else dump(value) for value in python_values(column)], pa.string())
    if pa.types.is_interval(kind):
        return pa.array([None if value is None else interval_text(*value) for value in column.to_pylist()], pa.string())
    if pa.types.is_duration(kind):
        return pa.array([None if value is None else str(value) for value in python_values(column)], pa.string())
    if pa.types.is_time(kind):
        return _with_end_of_day(column)
    return column


def _with_end_of_day(column: pa.Array) -> pa.Array:
    """Times of day, as text if one is 24:00, which Arrow can't write."""
    number = pa.int32() if column.type.bit_width == 32 else pa.int64()
    at_end = pc.equal(column.view(number), pa.scalar(_DAY[column.type.unit], number))
    if not pc.any(at_end).as_py():
        return column
    return pc.if_else(at_end, "24:00:00", pc.if_else(at_end, pa.scalar(None, column.type), column).cast(pa.string()))
