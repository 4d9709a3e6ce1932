"""Reads times as files write them: text, or numbers of some unit since 1970."""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.cli.formats import TimeUnit
from anabranch.core import exact
from anabranch.errors import InvalidArgument
from anabranch.model.columns import TIME_TYPE
from anabranch.model.ids import Micros
from anabranch.model.schema import StreamSchema
from anabranch.model.times import DEFAULT_RULES, UNITS_NS, TimeRules, format_time, is_plausible, to_micros

DATE_PATTERN: Final = r"^\d{4}-\d\d-\d\d$"
TIME_PATTERN: Final = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.]\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?$"
_FORMS: Final = (TIME_TYPE, pa.timestamp("us"), pa.timestamp("ns", "UTC"), pa.timestamp("ns"))
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?\Z")


class NotATime(Exception):
    """Row `row` has no valid time."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


@dataclass(frozen=True, slots=True)
class TimeReading:
    """How the times of an input are read. Without a `unit`, numbers are integers of µs, and an implausible one is
    refused. `form` is a strptime format: for the event time, or for all times if there is no event time."""

    rules: TimeRules = DEFAULT_RULES
    unit: TimeUnit | None = None
    form: str | None = None

    def for_column(self, name: str, schema: StreamSchema) -> TimeReading:
        """Returns how the times of one column are read."""
        if self.form is None or name == (schema.time or name):
            return self
        return TimeReading(self.rules, self.unit)

    def micros(self, value: str | int | float | Decimal) -> Micros:
        """Converts one time to µs. Raises InvalidArgument."""
        if self.form is not None:
            return to_micros(self._parsed(str(value)), self.rules)
        if not isinstance(value, str):
            return self._number(value)
        text = value.strip()
        return self._number(text) if _NUMBER.match(text) else to_micros(text, self.rules)

    def column(self, values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """Converts a column of texts, numbers or timestamps to timestamps of `kind`. Raises NotATime."""
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_timestamp(values.type):
            return self._timestamps(values, kind)
        if self.form is None:
            if pa.types.is_integer(values.type):
                return self._integers(values, kind)
            if pa.types.is_string(values.type):
                with suppress(pa.ArrowInvalid, InvalidArgument):
                    return self._texts(values, kind)
        if pa.types.is_date(values.type):
            return exact.cast(values, kind, self.rules)
        return self._one_by_one(values, kind)

    def _texts(self, texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """Converts texts; fast if all have the same form, as they nearly always do."""
        with suppress(pa.ArrowInvalid):
            return self._integers(texts.cast(pa.int64()), kind)
        for form in _FORMS:
            with suppress(pa.ArrowInvalid):
                return exact.cast(texts.cast(form), kind, self.rules)
        raise InvalidArgument("the texts have several formats, or an unknown one")

    def _timestamps(self, times: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        try:
            return exact.cast(times, kind, self.rules)
        except InvalidArgument as exc:
            low, high = 0, len(times)  # the first invalid one is in low <= row < high
            while high - low > 1:
                middle = (low + high) // 2
                try:
                    exact.cast(times.slice(low, middle - low), kind, self.rules)
                    low = middle
                except InvalidArgument:
                    high = middle
            raise NotATime(low, str(exc)) from exc

    def _integers(self, numbers: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        if pa.types.is_uint64(numbers.type):
            return self._one_by_one(numbers, kind)
        numbers = numbers.cast(pa.int64())
        edges: dict[str, Any] = pc.min_max(numbers).as_py()
        whole = self.unit is not TimeUnit.ns
        if whole and all(edge is None or self._is_sure(edge) for edge in edges.values()):
            with suppress(pa.ArrowInvalid):  # beyond 64 bits
                micros = pc.multiply_checked(numbers, UNITS_NS[self.unit or "us"] // 1_000)
                return micros.cast(TIME_TYPE).cast(kind)
        return self._one_by_one(numbers, kind)

    def _one_by_one(self, values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        micros: list[int | None] = []
        for row, value in enumerate(values.to_pylist()):
            try:
                micros.append(None if value is None else self.micros(value))
            except InvalidArgument as exc:
                raise NotATime(row, str(exc)) from exc
        return pa.chunked_array([pa.array(micros, pa.int64()).cast(TIME_TYPE)]).cast(kind)

    def _number(self, value: str | int | float | Decimal) -> Micros:
        if isinstance(value, bool):
            raise InvalidArgument("expected a timestamp, got a bool")
        try:
            number = Decimal(repr(value) if isinstance(value, float) else str(value))
            nanos = number * UNITS_NS[self.unit or "us"]
            if not number.is_finite() or abs(nanos) > 1 << 80:
                raise InvalidArgument(f"{value} is not a time")
        except InvalidOperation as exc:
            raise InvalidArgument(f"{value} is not a time") from exc
        if self.unit is None and (number != number.to_integral_value() or not self._is_sure(int(number))):
            raise InvalidArgument(implausible_time_message(value))
        micros = math.floor(nanos) // 1_000  # a Decimal's own // rounds up before 1970
        if nanos != micros * 1_000 and not self.rules.truncate:
            raise InvalidArgument(f"{value} has digits beyond µs, which would be lost; --truncate-times cuts them off")
        return Micros(_bounded(micros))

    def _is_sure(self, number: int) -> bool:
        return self.unit is not None or is_plausible(number)

    def _parsed(self, text: str) -> datetime:
        assert self.form is not None, "there is a format"
        try:
            return datetime.strptime(text.strip(), self.form)  # noqa: DTZ007 - the rules say what a naive one means
        except ValueError as exc:
            raise InvalidArgument(f"'{text}' is not a time of the format '{self.form}'") from exc


DEFAULT_READING: Final = TimeReading()


def implausible_time_message(value: object) -> str:
    """Returns why a number is not accepted as a time: what it would be in each unit, and which option selects it."""
    number = int(Decimal(str(value)))
    units = ", ".join(
        f"in {name} {format_time(number, unit)}" for unit, name in zip(UNITS_NS, ("s", "ms", "µs", "ns"), strict=True)
    )
    return f"{value} is not a plausible time in µs since 1970 ({units}): set --time-unit to s, ms, us or ns"


def times_of(table: pa.Table, schema: StreamSchema, reading: TimeReading) -> pa.Table:
    """Converts the time columns of a table to the types that the stream's schema has. Raises NotATime."""
    for index, name in enumerate(table.column_names):
        place = schema.columns.get_field_index(name)
        if place < 0 or not pa.types.is_timestamp(schema.columns.field(place).type):
            continue
        kind, column = schema.columns.field(place).type, table.column(index)
        try:
            times = reading.for_column(name, schema).column(column, kind)
        except NotATime as exc:
            raise NotATime(exc.row, f"column '{name}' takes {kind}: {exc}") from exc
        table = table.set_column(index, pa.field(name, kind), times)
    return table


def as_times(columns: pa.Schema, time: str | None, reading: TimeReading) -> pa.Schema:
    """Returns the columns of a new stream; its event time may be written as numbers, or in a format of its own."""
    index = -1 if time is None else columns.get_field_index(time)
    if index < 0:
        return columns
    kind = columns.field(index).type
    number = pa.types.is_integer(kind) or (reading.unit is not None and _is_fraction(kind))
    if number or (reading.form is not None and pa.types.is_string(kind)):
        return columns.set(index, pa.field(time, TIME_TYPE))
    return columns


def require_time_options(columns: pa.Schema, time: str | None) -> None:
    """Raises InvalidArgument if the event times of a new stream can be read only with an option that was not given."""
    index = -1 if time is None else columns.get_field_index(time)
    kind = pa.null() if index < 0 else columns.field(index).type
    if pa.types.is_string(kind):
        raise InvalidArgument(
            f"column '{time}' holds texts that are not ISO 8601 times: pass --time-format, such as '%d.%m.%Y %H:%M'"
        )
    if _is_fraction(kind):
        raise InvalidArgument(f"column '{time}' holds numbers with fractions: pass their unit with --time-unit")


def _is_fraction(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _bounded(micros: int) -> int:
    if not -(1 << 63) <= micros < 1 << 63:
        raise InvalidArgument(f"{micros} µs does not fit in 64 bits")
    return micros
