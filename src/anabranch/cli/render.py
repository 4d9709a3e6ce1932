"""Prints record batches, on stdout or into a file: as a table for people, JSON lines, CSV, Arrow or Parquet."""

from __future__ import annotations

import base64
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from anabranch import limits
from anabranch.cli.formats import Format
from anabranch.cli.output import strong
from anabranch.core.terminal import terminal_json, terminal_text
from anabranch.errors import InvalidArgument

_PAGE_ROWS: Final = 200  # rows of a table; realigned only if a column gets wider
_CELL_CHARS_MAX: Final = 60
_ROWS_PER_WRITE: Final = 8_192
_ROW_GROUP_BYTES: Final = 64 * limits.MIB
_ENDINGS: Final = {
    ".jsonl": Format.jsonl,
    ".ndjson": Format.jsonl,
    ".json": Format.jsonl,
    ".csv": Format.csv,
    ".arrow": Format.arrow,
    ".arrows": Format.arrow,
    ".parquet": Format.parquet,
    ".pq": Format.parquet,
    ".txt": Format.table,
}


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


def choose(chosen: Format | None, *, as_json: bool, output: Path | None = None) -> Format:
    """Returns the format: the given one, else that of the output file's ending, else a table for a terminal and JSON
    lines for a program. Raises InvalidArgument for an unknown ending."""
    if as_json:
        if chosen not in (None, Format.jsonl):
            raise InvalidArgument(f"--json prints JSON lines; it can't be combined with --format {chosen.value}")
        return Format.jsonl
    if chosen is not None:
        return chosen
    if output is None:
        return Format.table if sys.stdout.isatty() else Format.jsonl
    if (found := _ENDINGS.get(output.suffix.lower())) is None:
        raise InvalidArgument(f"the ending of {output} names no format ({', '.join(_ENDINGS)}): pass --format")
    return found


def render(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    kind: Format,
    output: Path | None = None,
    *,
    keep: bool = False,
) -> None:
    """Prints batches of one schema as they arrive, on stdout or into the new file `output`. Unless `keep`, a file that
    is not complete is removed. Raises InvalidArgument for a file that exists."""
    with _sink(output, keep=keep) as sink:
        renderer = _MAKERS[kind](schema, sink)
        for batch in batches:
            renderer.write(batch)
        renderer.close()


@contextmanager
def _sink(output: Path | None, *, keep: bool) -> Iterator[Sink]:
    if output is None:
        sys.stdout.flush()
        yield Sink(sys.stdout.buffer, sys.stdout.isatty())
        return
    try:
        file = output.open("xb")
    except OSError as exc:
        raise InvalidArgument(f"{output} can't be created: {exc.strerror}") from exc
    try:
        with file:
            yield Sink(file)
    except BaseException:
        if not keep:
            output.unlink(missing_ok=True)
        raise


class _Text:
    """Prints text. On stdout it goes through the text stream's buffer, so that bytes and text stay in order."""

    def __init__(self, sink: Sink) -> None:
        self._out, self._terminal = sink

    def put(self, text: str) -> None:
        self._out.write(text.encode("utf-8", "surrogateescape"))
        self._out.flush()


class JsonLines(_Text):
    """Prints one JSON object a row. Times are ISO 8601; bytes that are not UTF-8 are base64 under `NAME_base64`; the
    numbers that JSON lacks are the texts "NaN", "Infinity" and "-Infinity", as in the JSON mapping of Protocol Buffers:
    they differ from null, and `write` reads them back."""

    def __init__(self, schema: pa.Schema, sink: Sink) -> None:
        super().__init__(sink)

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _ROWS_PER_WRITE):
            lines = "".join([f"{row}\n" for row in json_rows(batch.slice(start, _ROWS_PER_WRITE))])
            self.put(terminal_json(lines) if self._terminal else lines)

    def close(self) -> None:
        pass


def json_rows(batch: pa.RecordBatch) -> list[str]:
    """Returns each row as a JSON object, as `JsonLines` prints it."""
    members = [_members(f.name, c) for f, c in zip(batch.schema, batch.columns, strict=True)]
    return [f"{{{', '.join(row)}}}" for row in zip(*members, strict=True)]


class Csv(_Text):
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


class Arrow:
    """Prints an Arrow IPC stream."""

    def __init__(self, schema: pa.Schema, sink: Sink) -> None:
        if sink.terminal:
            raise InvalidArgument("an Arrow stream is binary: send it to a program, or to a file with --output")
        self._out = sink.file
        self._schema = schema
        self._sent = False

    def write(self, batch: pa.RecordBatch) -> None:
        self._send_schema()
        self._out.write(batch.serialize())
        self._out.flush()

    def _send_schema(self) -> None:
        if not self._sent:
            self._out.write(self._schema.serialize())
            self._sent = True

    def close(self) -> None:
        self._send_schema()
        self._out.write(b"\xff\xff\xff\xff\x00\x00\x00\x00")  # the end marker of an IPC stream
        self._out.flush()


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


class TableRenderer(_Text):
    """Prints columns for a person, a page at a time, so that a long stream begins to appear at once."""

    def __init__(self, schema: pa.Schema, sink: Sink) -> None:
        super().__init__(sink)
        self._names = [terminal_text(name) for name in schema.names]
        self._right = [
            pa.types.is_integer(f.type) or pa.types.is_floating(f.type) or pa.types.is_decimal(f.type) for f in schema
        ]
        self._widths = [0] * len(self._names)
        self._cells = max(12, min(_CELL_CHARS_MAX, shutil.get_terminal_size().columns // max(1, len(self._names))))
        if not sink.terminal:
            self._cells = _CELL_CHARS_MAX

    def write(self, batch: pa.RecordBatch) -> None:
        for start in range(0, batch.num_rows, _PAGE_ROWS):
            page = batch.slice(start, _PAGE_ROWS)
            self._page([[self._cell(value) for value in _plain(column)] for column in page.columns])

    def _page(self, columns: list[list[str]]) -> None:
        widths = [max(map(len, [name, *cells])) for name, cells in zip(self._names, columns, strict=True)]
        lines = []
        if not any(self._widths) or any(new > old for new, old in zip(widths, self._widths, strict=True)):
            first = not any(self._widths)
            self._widths = [max(pair) for pair in zip(widths, self._widths, strict=True)]
            if first:
                header = self._line(self._names)
                lines.append(strong(header) if self._terminal else header)
        lines += [self._line(row) for row in zip(*columns, strict=True)]
        self.put("\n".join(lines) + "\n")

    def _line(self, cells: Iterable[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        ]
        return "  ".join(padded).rstrip()

    def _cell(self, value: Any) -> str:
        value = _json_number(value) if isinstance(value, float) else value
        text = "-" if value is None else value if isinstance(value, str) else _dump(value)
        text = terminal_text(text)
        return text if len(text) <= self._cells else text[: self._cells - 1] + "…"

    def close(self) -> None:
        if not any(self._widths):
            self._page([[] for _ in self._names])


_MAKERS: Final[dict[Format, Callable[[pa.Schema, Sink], Renderer]]] = {
    Format.table: TableRenderer,
    Format.jsonl: JsonLines,
    Format.csv: Csv,
    Format.arrow: Arrow,
    Format.parquet: Parquet,
}


def _members(name: str, column: pa.Array) -> list[str]:
    """Returns a column as members of JSON objects."""
    label = f"{_dump(name)}: "
    if _is_bytes(column.type):
        return [_bytes_member(name, label, value) for value in column.to_pylist()]
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return [label + "null" if text is None else f'{label}"{text}"' for text in _iso(column)]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encode = encode_basestring
        return [label + "null" if text is None else label + encode(text) for text in column.to_pylist()]
    if (pa.types.is_integer(kind) or pa.types.is_float64(kind)) and _plain_numbers(column):
        return [f"{label}{value}" for value in column.to_numpy().tolist()]
    if _is_whole(kind):
        return [label + ("null" if value is None else str(int(value))) for value in column.to_pylist()]
    return [label + _dump(value) for value in column.to_pylist()]


def _is_whole(kind: pa.DataType) -> bool:
    """True for a decimal without a fraction, as DuckDB returns sums of integers."""
    return bool(pa.types.is_decimal(kind) and kind.scale == 0)


def _plain_numbers(column: pa.Array) -> bool:
    """True if Python's text of each value is valid JSON."""
    return not column.null_count and (
        pa.types.is_integer(column.type) or pc.all(pc.is_finite(column)).as_py() is not False
    )


def _bytes_member(name: str, label: str, value: bytes | None) -> str:
    if value is None:
        return label + "null"
    try:
        return label + encode_basestring(value.decode())
    except UnicodeDecodeError:
        return f'{_dump(name + "_base64")}: "{base64.b64encode(value).decode()}"'


def _flat(column: pa.Array) -> pa.Array:
    """Returns a column in a form that CSV can hold."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return _iso_array(column)
    if _is_bytes(kind):
        return pa.array([None if value is None else _bytes_text(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else _dump(value) for value in column.to_pylist()], pa.string())
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return column


def _plain(column: pa.Array) -> list[Any]:
    """Returns a column's values in a form for people."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return list(_iso(column))
    if pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in column.to_pylist()]
    return [
        value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value for value in column.to_pylist()
    ]


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()


def _iso(column: pa.Array) -> list[str | None]:
    texts: list[str | None] = _iso_array(column).to_pylist()
    return texts


def _iso_array(column: pa.Array) -> pa.Array:
    kind = column.type
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    if zoned:
        # UTC without a zone: Arrow prints it five times as fast.
        column = column.cast(pa.timestamp(kind.unit, "UTC")).view(pa.timestamp(kind.unit))
    texts = pc.replace_substring(column.cast(pa.string()), " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(texts, "Z", "") if zoned else texts


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _dump(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=_unusual, allow_nan=False)
    except ValueError:
        return json.dumps(_json_numbers(value), ensure_ascii=False, default=_unusual)


def _unusual(value: Any) -> Any:
    """Converts values inside nested ones that JSON does not have."""
    if isinstance(value, bytes):
        return _bytes_text(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value)


def _json_numbers(value: Any) -> Any:
    if isinstance(value, float):
        return _json_number(value)
    if isinstance(value, dict):
        return {key: _json_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_numbers(item) for item in value]
    return value


def _json_number(value: float) -> float | str:
    """The number, or its name if JSON has no such number."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
