"""How a stream is seen as a measurement: which of its columns are tags, and which are fields of which type.

A text column is a tag, unless the stream's tag `influxql.text-fields` lists it: InfluxDB distinguishes text fields from
tags; Arrow does not. Numbers and booleans are fields. Other columns can't be seen, nor can the event time but as
`time`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName
from anabranch.model.stream import StreamInfo
from anabranch.query.influxql import syntax as ast
from anabranch.query.influxql.times import TIME_MAX, TIME_MIN, US, TimeRange
from anabranch.query.sql_text import quoted

TEXT_FIELDS: Final = "influxql.text-fields"
"""The stream's tag with the names of its text fields, separated by commas."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A stream as InfluxQL sees it. `time` is the column of its times: that of the event times, or `_appended`."""

    stream: StreamName
    id: StreamId
    time: str
    tags: tuple[str, ...]
    fields: Mapping[str, ast.FieldType]

    @property
    def name(self) -> str:
        """The name of the measurement."""
        return self.stream.name

    @classmethod
    def of(cls, info: StreamInfo) -> Measurement:
        """The stream as a measurement. Its tags and fields are in the order of their names."""
        schema = info.schema
        texts = text_fields(info.tags)
        tags, fields = [], {}
        for column in sorted(schema.columns, key=lambda field: field.name):
            if column.name in (schema.time, "time"):
                continue
            kind = field_type(column.type)
            if kind == "string" and column.name not in texts:
                tags.append(column.name)
            elif kind is not None:
                fields[column.name] = kind
        return cls(info.name, info.id, schema.time or "_appended", tuple(tags), fields)

    @property
    def table(self) -> str:
        """The stream in SQL."""
        return quoted(str(self.stream))

    @property
    def row_time(self) -> str:
        """The SQL of an event's time in microseconds."""
        return f"epoch_us({quoted(self.time)})"

    def column(self, field: str) -> str:
        """A field in SQL."""
        return quoted(field)

    def tag(self, name: str) -> str:
        """The SQL of a tag's value, the empty text where there is none."""
        return f"coalesce({quoted(name)}, '')" if name in self.tags else "''"

    def shown_tag(self, name: str) -> str:
        """The SQL of a tag's value, null where there is none."""
        return f"nullif({quoted(name)}, '')" if name in self.tags else "NULL"

    def order(self, *, descending: bool) -> list[str]:
        """The order by time; events of the same time are in the order of their series."""
        direction = "DESC" if descending else "ASC"
        return [f"{each} {direction}" for each in (self.row_time, *map(self.tag, self.tags))]

    def in_time(self, times: TimeRange) -> str | None:
        """The SQL of the condition that an event is in the time range. Streams have microseconds."""
        column, parts = quoted(self.time), []
        if times.start != TIME_MIN:
            parts.append(f"{column} >= make_timestamptz({-(-times.start // US)})")
        if times.stop != TIME_MAX:
            parts.append(f"{column} <= make_timestamptz({times.stop // US})")
        return " AND ".join(parts) or None

    def of_window_beyond(self, beyond: bool, times: TimeRange) -> str:
        """All events count for a call that needs more than the time range."""
        return "true" if beyond else self.in_time(times) or "true"


def text_fields(tags: Mapping[str, str]) -> list[str]:
    """The text fields that the tags of a stream list."""
    return [name for name in tags.get(TEXT_FIELDS, "").split(",") if name]


def field_type(kind: pa.DataType) -> ast.FieldType | None:
    """The type of a field with values of this type; None if InfluxQL has none for it."""
    types = pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind) or types.is_decimal(kind):
        return "float"
    return "string" if types.is_string(kind) else None
