"""A result as CSV."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv

from anabranch.cli.render.sink import Sink, TextRenderer
from anabranch.cli.render.values import dump, is_bytes, iso_array
from anabranch.core.bytes_text import bytes_to_text
from anabranch.core.python_values import python_values
from anabranch.core.terminal import terminal_text

__all__ = ["Csv"]


class Csv(TextRenderer):
    """Prints CSV with a header. Text is quoted, null is empty; nested values are JSON; bytes that are not UTF-8 are
    base64 after `base64:`. CSV has no escapes, so on a terminal control characters are replaced by their names."""

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
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return pa.array([None if value is None else str(value) for value in python_values(column)], pa.string())
    return column
