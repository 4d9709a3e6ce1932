"""Python values as Arrow columns of a stream's schema. What does not fit is refused, naming the column and the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any, Final

import pyarrow as pa

from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.schema import StreamSchema

_REFUSALS: Final = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    TypeError,
    ValueError,
    OverflowError,
)
_NONE: Final = frozenset({type(None)})
_CLASSES: Final[list[tuple[Any, frozenset[type]]]] = [
    (pa.types.is_string, frozenset({str})),
    (pa.types.is_binary, frozenset({bytes})),
    (pa.types.is_boolean, frozenset({bool})),
    (pa.types.is_integer, frozenset({int})),
    (pa.types.is_floating, frozenset({float, int})),
    (pa.types.is_timestamp, frozenset({datetime, int})),
    (pa.types.is_date, frozenset({date})),
    (pa.types.is_duration, frozenset({timedelta})),
    (pa.types.is_decimal, frozenset({Decimal})),
]


class RowChecker:
    """Checks single rows against a schema as fast as Python can: by the class of each value. A class that is not
    expected is given to Arrow, which knows better; so is, later and for many rows at once, everything else."""

    def __init__(self, schema: StreamSchema) -> None:
        self._types = {field.name: field.type for field in schema.columns}
        self._classes = {field.name: _classes(field.type) for field in schema.columns}
        self._sized = [field.name for field in schema.columns if not _fixed_width(field.type)]

    def bytes_of(self, row: Mapping[str, Any]) -> int:
        """About what the row's values of no fixed width weigh: text counts one byte a character."""
        return sum(_weight(row.get(name)) for name in self._sized) if self._sized else 0

    def check(self, row: Mapping[str, Any]) -> None:
        """Raise SchemaMismatch if the row has an unknown column or a value of another type."""
        classes = self._classes
        try:
            for name, value in row.items():
                if value.__class__ not in classes[name]:
                    self._ask_arrow(name, value)
        except KeyError:
            unknown = next(name for name in row if name not in classes)
            raise SchemaMismatch(
                f"there is no column '{unknown}'; the stream has {', '.join(classes)}", column=str(unknown)
            ) from None
        except AttributeError:
            raise InvalidArgument(
                f"an event of a typed stream is a mapping of its columns, not {type(row).__name__}"
            ) from None

    def _ask_arrow(self, name: str, value: Any) -> None:
        try:
            _refuse_loss(value, self._types[name])
            pa.array([value], self._types[name])
        except _REFUSALS as exc:
            raise _mismatch(name, self._types[name], exc) from exc


def rows_to_batch(rows: Sequence[Mapping[str, Any]], schema: StreamSchema) -> pa.RecordBatch:
    """Rows as one batch; missing columns are null. Raises SchemaMismatch with the first wrong row."""
    kind = pa.struct(list(schema.columns))
    try:
        return pa.RecordBatch.from_struct_array(pa.array(rows, kind))
    except _REFUSALS as exc:
        for _, wrong in wrong_rows(rows, schema):
            raise wrong from exc
        raise


def wrong_rows(rows: Sequence[Mapping[str, Any]], schema: StreamSchema) -> Iterator[tuple[int, SchemaMismatch]]:
    """The rows that `rows_to_batch` can't take, each with what is wrong with its first wrong value."""
    for number, row in enumerate(rows):
        for name, value in row.items():
            try:
                pa.array([value], schema.columns.field(name).type)
            except _REFUSALS as exc:
                wrong = _mismatch(name, schema.columns.field(name).type, exc, number)
                wrong.__cause__ = exc
                yield number, wrong
                break


def payload_view(event: Any, bytes_max: int) -> bytes | memoryview:
    """The same as `payload_bytes`, but of more than `bytes_max` bytes that can be looked at where they lie, no copy."""
    if isinstance(event, (bytearray, memoryview)):
        view = memoryview(event)
        if view.nbytes > bytes_max and view.c_contiguous:
            return view.cast("B")
    return payload_bytes(event)


def payload_bytes(event: Any) -> bytes:
    """An event of a raw stream as its payload. Raises SchemaMismatch for what is neither bytes nor text."""
    if isinstance(event, str):
        try:
            return event.encode()
        except UnicodeEncodeError as exc:
            raise SchemaMismatch(f"the event is no text: {exc.reason} at {exc.start}") from exc
    if isinstance(event, (bytes, bytearray, memoryview)):
        return bytes(event)
    raise SchemaMismatch(f"an event of a raw stream is bytes or text, not {type(event).__name__}")


def conform(data: Any, schema: StreamSchema) -> pa.Table:
    """Anything with `__arrow_c_stream__` or `__arrow_c_array__` (Arrow, pandas, polars, DuckDB …) as a table of the
    stored columns, in their order and types. Missing columns are null; unknown ones and values that a safe cast can't
    convert raise SchemaMismatch."""
    table = table_of(data)
    known = schema.columns.names
    for name in table.column_names:
        if name not in known:
            raise SchemaMismatch(f"there is no column '{name}'; the stream has {', '.join(known)}", column=name)
    if len(set(table.column_names)) != len(table.column_names):
        raise SchemaMismatch("a column stands twice in the batch")
    columns = []
    for field in schema.columns:
        if field.name not in table.column_names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)], field.type))
            continue
        column = table.column(field.name)
        try:
            columns.append(column if column.type == field.type else _cast(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as exc:
            raise _mismatch(field.name, field.type, exc) from exc
    return pa.Table.from_arrays(columns, schema=schema.columns)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        # pandas keeps nanoseconds whether or not they were measured; the store keeps µs.
        return column.cast(kind, safe=False)
    return column.cast(kind)


def table_of(data: Any) -> pa.Table:
    """A batch as a table, read whole. Raises InvalidArgument for what is none."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    raise InvalidArgument(
        f"a batch is anything with __arrow_c_stream__ (Arrow, pandas, polars …), not {type(data).__name__}"
    )


def _refuse_loss(value: Any, kind: pa.DataType) -> None:
    """Raise ValueError for what Arrow would take, but not keep whole."""
    types = pa.types
    if value is None:
        return
    if types.is_list(kind):
        if isinstance(value, (str, bytes)):
            raise ValueError("text is no list")
        for each in value:
            _refuse_loss(each, kind.value_type)
    elif types.is_struct(kind) and isinstance(value, Mapping):
        fields = {field.name: field.type for field in kind}
        for name, each in value.items():
            if name not in fields:
                raise ValueError(f"there is no field '{name}'")
            _refuse_loss(each, fields[name])
    elif types.is_date(kind) and isinstance(value, datetime):
        raise ValueError("a date has no time of day")
    elif (types.is_integer(kind) or types.is_temporal(kind)) and isinstance(value, Number) and value != int(value):  # type: ignore[call-overload]
        raise ValueError(f"{value} has a fraction")


def _fixed_width(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _weight(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_weight(each) + 8 for each in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_weight(each) + 8 for each in value)
    return len(value) if hasattr(value, "__len__") else 0


def _classes(kind: pa.DataType) -> frozenset[type]:
    return next((classes for matches, classes in _CLASSES if matches(kind)), frozenset()) | _NONE


def _mismatch(name: str, kind: pa.DataType, exc: Exception, row: int | None = None) -> SchemaMismatch:
    where = "" if row is None else f" in row {row}"
    return SchemaMismatch(f"column '{name}' takes {kind}{where}: {exc}", column=name, row=row)
