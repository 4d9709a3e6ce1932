"""Converts Python values to Arrow columns of a stream's schema. Values that don't fit are refused, naming the column
and the row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Number
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.core import exact
from anabranch.core.checks import refuse_violations, violations
from anabranch.errors import InvalidArgument, SchemaMismatch
from anabranch.model.columns import RESERVED, index_levels
from anabranch.model.names import is_unicode
from anabranch.model.schema import StreamSchema
from anabranch.model.times import DEFAULT_RULES, TimeRules, has_nanoseconds, is_nat, precision_error, to_micros

_REFUSALS: Final = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    TypeError,
    ValueError,
    OverflowError,
)
_HALF_MAX: Final = float(np.finfo(np.float16).max)
_SURE_MIN: Final = limits.TIME_PLAUSIBLE_MIN_US
_SURE_MAX: Final = limits.TIME_PLAUSIBLE_MAX_US
_NONE: Final = frozenset({type(None)})
_CLASSES: Final[list[tuple[Any, frozenset[type]]]] = [
    (pa.types.is_string, frozenset({str})),
    (pa.types.is_binary, frozenset({bytes})),
    (pa.types.is_boolean, frozenset({bool})),
    (pa.types.is_integer, frozenset({int})),
    (pa.types.is_floating, frozenset({float, int})),
    (pa.types.is_timestamp, frozenset({datetime, int})),
    (pa.types.is_date, frozenset({date})),
    (lambda kind: pa.types.is_duration(kind) and kind.unit in ("us", "ns"), frozenset({timedelta})),
    (pa.types.is_decimal, frozenset({Decimal})),
]


class RowChecker:
    """Checks single rows against a schema as fast as Python can: by the class of each value. A value of an unexpected
    class is checked with Arrow. Everything else is left to Arrow later, for many rows at once."""

    def __init__(self, schema: StreamSchema, rules: TimeRules = DEFAULT_RULES) -> None:
        """`rules` say how times are interpreted."""
        self._rules = rules
        self._timed = {field.name: field.type for field in schema.columns if exact.has_times(field.type)}
        self._when = next((name for name, kind in self._timed.items() if pa.types.is_timestamp(kind)), None)
        self._more_timed = len(self._timed) > (self._when is not None)
        self._narrow = {field.name: found for field in schema.columns if (found := _narrow_limits(field.type))}
        self._types = {field.name: field.type for field in schema.columns}
        self._classes = {field.name: _classes(field.type) for field in schema.columns}
        self._sized = [field.name for field in schema.columns if not _fixed_width(field.type)]
        self._ranges = {f.name: ends for f in schema.columns if (ends := _whole_range(f.type)) is not None}
        self._texts = [field.name for field in schema.columns if pa.types.is_string(field.type)]
        self._uncertain = [
            f.name for f in schema.columns if pa.types.is_decimal(f.type) or pa.types.is_duration(f.type)
        ]

    def bytes_of(self, row: Mapping[str, Any]) -> int:
        """The approximate size of the row's values of variable width; text counts one byte per character."""
        return sum(_weight(row.get(name)) for name in self._sized) if self._sized else 0

    def checked(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the row, with its times converted as the rules say. Raises SchemaMismatch if it has an unknown
        column or a value of another type, InvalidArgument if it is not a mapping."""
        classes = self._classes
        try:
            own = {**row}
        except TypeError:
            raise InvalidArgument(
                f"expected an event of a typed stream as a mapping of its columns, got {type(row).__name__}"
            ) from None
        try:
            for name, value in own.items():
                if value.__class__ not in classes[name]:
                    own[name] = self._ask_arrow(name, value)
            if self._narrow:
                self._check_narrow(own)
        except KeyError:
            unknown = next(name for name in own if name not in classes)
            raise SchemaMismatch(
                f"unknown column '{unknown}'; the stream has {', '.join(classes)}", column=str(unknown)
            ) from None
        return self._normalize(own)

    def check_values(self, row: Mapping[str, Any]) -> None:
        """Check what `checked` leaves to Arrow: that the row's integers, decimals and durations are in the range of
        their columns, and that the row's texts are Unicode. Raises SchemaMismatch."""
        for name, (low, high) in self._ranges.items():
            value = row.get(name)
            if value.__class__ is int and not low <= value <= high:
                self._ask_arrow(name, value)
        for name in self._texts:
            value = row.get(name)
            if value.__class__ is str and not value.isascii() and not is_unicode(value):
                self._ask_arrow(name, value)
        for name in self._uncertain:
            if (value := row.get(name)) is not None:
                self._ask_arrow(name, value)

    def _check_narrow(self, row: Mapping[str, Any]) -> None:
        """Check the numbers of narrow float columns: Arrow turns a number that the type can't hold into infinity."""
        for name, limits_of in self._narrow.items():
            value: Any = row.get(name)
            limit = limits_of.get(value.__class__)
            if limit is not None and not -limit <= value <= limit:
                self._ask_arrow(name, value)

    def _normalize(self, own: dict[str, Any]) -> dict[str, Any]:
        when = own.get(self._when)  # type: ignore[arg-type] # without such a column this is None, which is not a key
        kind = when.__class__
        # The usual case first: every single event pays for each step here.
        if kind is datetime:
            sure = when.tzinfo is not None  # type: ignore[union-attr]
        elif kind is int:
            sure = _SURE_MIN <= when < _SURE_MAX  # type: ignore[operator]
        else:
            sure = when is None
        return own if sure and not self._more_timed else self._with_times(own)

    def _with_times(self, own: dict[str, Any]) -> dict[str, Any]:
        for name, kind in self._timed.items():
            if (value := own.get(name)) is not None:
                try:
                    own[name] = _convert_times(value, kind, self._rules)
                except InvalidArgument as exc:
                    raise _mismatch(name, kind, exc) from exc
        return own

    def _ask_arrow(self, name: str, value: Any) -> Any:
        """The value as Arrow takes it. Raises SchemaMismatch if the column doesn't take it."""
        value = _for_arrow(value)
        try:
            refuse_loss(value, self._types[name], self._rules)
            pa.array([value], self._types[name])
        except _REFUSALS as exc:
            raise _mismatch(name, self._types[name], exc) from exc
        return value


def rows_to_batch(rows: Sequence[Mapping[str, Any]], schema: StreamSchema) -> pa.RecordBatch:
    """Rows as one batch; missing columns are null. Raises SchemaMismatch with the first wrong row."""
    kind = pa.struct(list(schema.columns))
    try:
        batch = pa.RecordBatch.from_struct_array(pa.array(rows, kind))
    except _REFUSALS as exc:
        for _, wrong in wrong_rows(rows, schema):
            raise wrong from exc
        raise
    if schema.checks:
        refuse_violations(batch, schema.checks)
    return batch


def wrong_rows(rows: Sequence[Mapping[str, Any]], schema: StreamSchema) -> Iterator[tuple[int, SchemaMismatch]]:
    """The rows that `rows_to_batch` refuses, each with an error for its first wrong value; then the rows that break a
    check."""
    fitting = []
    for number, row in enumerate(rows):
        for name, value in row.items():
            try:
                pa.array([value], schema.columns.field(name).type)
            except _REFUSALS as exc:
                wrong = _mismatch(name, schema.columns.field(name).type, exc, number)
                wrong.__cause__ = exc
                yield number, wrong
                break
        else:
            fitting.append(number)
    if schema.checks and fitting:
        kind = pa.struct(list(schema.columns))
        batch = pa.RecordBatch.from_struct_array(pa.array([rows[number] for number in fitting], kind))
        for broken in violations(batch, schema.checks, fitting):
            assert broken.row is not None
            yield broken.row, broken


def payload_view(event: Any, bytes_max: int) -> bytes | memoryview:
    """Like `payload_bytes`, but without a copy if the payload is a contiguous buffer of more than `bytes_max` bytes."""
    if isinstance(event, (bytearray, memoryview)):
        view = memoryview(event)
        if view.nbytes > bytes_max and view.c_contiguous:
            return view.cast("B")
    return payload_bytes(event)


def payload_bytes(event: Any) -> bytes:
    """The payload of an event of a raw stream. Raises SchemaMismatch for anything but bytes and text."""
    if isinstance(event, str):
        try:
            return event.encode()
        except UnicodeEncodeError as exc:
            raise SchemaMismatch(f"can't encode the event as UTF-8: {exc.reason} at {exc.start}") from exc
    if isinstance(event, (bytes, bytearray, memoryview)):
        return bytes(event)
    raise SchemaMismatch(f"expected an event of a raw stream as bytes or str, got {type(event).__name__}")


def to_stored_table(data: Any, schema: StreamSchema, rules: TimeRules = DEFAULT_RULES) -> pa.Table:
    """Convert anything with `__arrow_c_stream__` or `__arrow_c_array__` (Arrow, pandas, polars, DuckDB …) to a table of
    the stored columns, in their order and types. Missing columns are null; unknown ones, and values that a cast would
    change, raise SchemaMismatch. Times are interpreted as `rules` say.

    The columns that a reader adds (`_segment`, `_offset`, `_appended`) are left out, so what a reader yields can be
    written as it is. So are the levels of a pandas index, unless the stream has a column of that name."""
    columns_of_stream = schema.columns.names
    table = _user_columns(to_table(data), columns_of_stream)
    for name in table.column_names:
        if name not in columns_of_stream:
            raise SchemaMismatch(f"unknown column '{name}'; the stream has {', '.join(columns_of_stream)}", column=name)
    if len(set(table.column_names)) != len(table.column_names):
        raise SchemaMismatch("expected each column once; the batch has a column twice")
    columns = []
    for field in schema.columns:
        if field.name not in table.column_names:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, field.type)], field.type))
            continue
        column = table.column(field.name)
        try:
            columns.append(exact.cast(column, field.type, rules))
        except (InvalidArgument, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as exc:
            raise _mismatch(field.name, field.type, exc) from exc
    stored = pa.Table.from_arrays(columns, schema=schema.columns)
    if schema.checks:
        refuse_violations(stored, schema.checks)
    return stored


def to_table(data: Any) -> pa.Table:
    """A batch as a table, read entirely. Raises InvalidArgument if it is not a batch."""
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if hasattr(data, "__arrow_c_stream__"):
            batches = pa.RecordBatchReader.from_stream(data)
        elif hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
        else:
            raise InvalidArgument(
                f"expected a batch with __arrow_c_stream__ (Arrow, pandas, polars …), got {type(data).__name__}"
            )
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as exc:
        # Of a single column, for example, or of a DataFrame whose column holds numbers and text.
        raise InvalidArgument(f"this {type(data).__name__} is not a batch of columns: {exc}") from exc
    return batches.read_all()  # a source that computes its batches only now may raise an error of the caller's own


def _user_columns(table: pa.Table, columns_of_stream: Sequence[str]) -> pa.Table:
    """The table without the columns that a reader or pandas added."""
    names = table.column_names
    added = {*RESERVED, *index_levels(table.schema)}.intersection(names).difference(columns_of_stream)
    return table.select([i for i, name in enumerate(names) if name not in added]) if added else table


def _convert_times(value: Any, kind: pa.DataType, rules: TimeRules) -> Any:
    """A value with all times in it converted. Anything that is not a time is left unchanged."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return rules.aware(value) if pa.types.is_timestamp(kind) and kind.tz is not None else value
    if isinstance(value, int) and pa.types.is_timestamp(kind):
        return to_micros(value, rules)
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        types = {field.name: field.type for field in kind}
        return {
            name: _convert_times(each, types[name], rules) if name in types else each for name, each in value.items()
        }
    if pa.types.is_list(kind) and not isinstance(value, (str, bytes)):
        return [_convert_times(each, kind.value_type, rules) for each in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(_convert_times(k, kind.key_type, rules), _convert_times(v, kind.item_type, rules)) for k, v in pairs]
    return value


def _for_arrow(value: Any) -> Any:
    """The value with a copy of the bytes of each memoryview in it (see `binary_column`), and null for each NaT of
    pandas, which Arrow would refuse or turn into a date."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {_for_arrow(name): _for_arrow(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_for_arrow(each) for each in value]
    if isinstance(value, tuple):  # an entry of a map has to stay a tuple
        return tuple(map(_for_arrow, value))
    if is_nat(value):
        return None
    return value


def refuse_loss(value: Any, kind: pa.DataType, rules: TimeRules) -> None:
    """Raise ValueError for a value that Arrow would accept, but change."""
    types = pa.types
    if value is None:
        return
    if types.is_list(kind):
        if isinstance(value, (str, bytes)):
            raise ValueError(f"expected a list, got {type(value).__name__}")
        if isinstance(value, np.ndarray) and value.dtype.kind in "mM" and not _has_unit(value.dtype, kind.value_type):
            raise ValueError(f"expected a list of {kind.value_type}, got an array of {value.dtype}")
        for each in value:
            refuse_loss(each, kind.value_type, rules)
    elif types.is_struct(kind):
        for name, each in _members(value, kind):
            refuse_loss(each, kind.field(name).type, rules)
    elif types.is_map(kind):
        if isinstance(value, (str, bytes)):
            raise ValueError(f"expected a map, got {type(value).__name__}")
        for key, each in value.items() if isinstance(value, Mapping) else value:
            refuse_loss(key, kind.key_type, rules)
            refuse_loss(each, kind.item_type, rules)
    elif types.is_date(kind) and isinstance(value, datetime):
        raise ValueError("expected a date, got a datetime: pass its date()")
    elif types.is_timestamp(kind) and isinstance(value, date) and not isinstance(value, datetime):
        raise ValueError("expected a datetime, got a date: add a time of day")
    elif types.is_time(kind) and isinstance(value, datetime):
        raise ValueError("expected a time of day, got a datetime: pass its time()")
    elif types.is_time(kind) and isinstance(value, time) and value.tzinfo is not None:
        raise ValueError(f"expected a time of day without a zone, got {value}")
    elif isinstance(value, datetime) and has_nanoseconds(value) and not rules.truncate:
        raise precision_error(value)
    elif (types.is_time(kind) and isinstance(value, time) and _rest(value.microsecond, kind)) or (
        types.is_duration(kind) and isinstance(value, timedelta) and _finer(value, kind)
    ):
        raise ValueError(f"{value} is finer than {kind}")
    elif (limit := exact.narrow_limit(kind)) is not None and isinstance(value, (float, np.floating)):
        if np.isfinite(value) and not -limit <= value <= limit:
            raise ValueError(f"{value} is out of its range")
    elif types.is_float16(kind) and isinstance(value, (int, np.integer)):  # for wider floats, Arrow checks this
        if not -_HALF_MAX <= value <= _HALF_MAX or float(np.float16(value)) != value:
            raise ValueError(f"the integer {value} can't be kept exactly")
    elif isinstance(value, np.bool_):  # a number to Arrow
        if types.is_integer(kind) or types.is_temporal(kind):
            raise ValueError(f"expected {kind}, got a bool")
    elif isinstance(value, (np.timedelta64, np.datetime64)):  # numbers to Python
        if not (types.is_duration(kind) if isinstance(value, np.timedelta64) else types.is_timestamp(kind)):
            raise ValueError(f"expected {kind}, got a {value.dtype}")  # of others, Arrow checks the unit
    elif (types.is_integer(kind) or types.is_temporal(kind)) and isinstance(value, Number) and value != int(value):  # type: ignore[call-overload]
        raise ValueError(f"{value} has a fraction")


def _members(value: Any, kind: pa.DataType) -> Iterator[tuple[str, Any]]:
    """The members of a struct, given as a mapping or as a tuple of all members. Raises ValueError for anything else:
    Arrow turns an empty list or text into a struct of nulls, and some lists of pairs crash the process."""
    names = [field.name for field in kind]
    if isinstance(value, tuple) and len(value) == len(names):
        yield from zip(names, value, strict=True)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            if name not in names:
                raise ValueError(f"unknown field '{name}'")
            yield name, each
    else:
        raise ValueError(f"expected a mapping of the fields {', '.join(names)}, got {type(value).__name__}")


def _has_unit(dtype: np.dtype[Any], kind: pa.DataType) -> bool:
    """True if an array of numpy's durations or times has this Arrow type. Arrow itself ignores the
    array's unit."""
    same = pa.types.is_duration(kind) if dtype.kind == "m" else pa.types.is_timestamp(kind)
    return bool(same) and np.datetime_data(dtype) == (kind.unit, 1)


def _finer(value: timedelta, kind: pa.DataType) -> bool:
    """True if the duration has digits that the type can't hold. Durations of pandas have nanoseconds."""
    nanoseconds = kind.unit != "ns" and getattr(value, "nanoseconds", 0) != 0
    return nanoseconds or _rest(value // timedelta(microseconds=1), kind) != 0


def _rest(micros: int, kind: pa.DataType) -> int:
    """The µs of a time that a coarser type can't hold."""
    return micros % {"s": 1_000_000, "ms": 1_000}.get(kind.unit, 1)


def _narrow_limits(kind: pa.DataType) -> dict[type, float]:
    """By class, the greatest absolute value that a narrow float type takes without a further check; empty for other
    types. Arrow itself checks integers for all float types but the narrowest."""
    limit = exact.narrow_limit(kind)
    if limit is None:
        return {}
    return {float: limit, int: exact.EXACT_INTEGERS[16]} if pa.types.is_float16(kind) else {float: limit}


def _fixed_width(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _whole_range(kind: pa.DataType) -> tuple[int, int] | None:
    """The smallest and the greatest integer that a numeric column is certain to hold; None for other columns."""
    if pa.types.is_floating(kind):
        return -exact.EXACT_INTEGERS[kind.bit_width], exact.EXACT_INTEGERS[kind.bit_width]
    if not pa.types.is_integer(kind):
        return None
    if pa.types.is_unsigned_integer(kind):
        return 0, (1 << kind.bit_width) - 1
    return -(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1


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
