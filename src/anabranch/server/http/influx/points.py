"""Points of the line protocol as rows of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.model.columns import RESERVED, TIME_TYPE
from anabranch.model.stream import StreamInfo
from anabranch.query.influxql.measurement import TEXT_FIELDS, field_type, text_fields
from anabranch.query.influxql.syntax import FieldType
from anabranch.server.http.influx.line_protocol import FieldValue, InfluxPoint

_TYPES: Final[Mapping[FieldType, pa.DataType]] = {
    "float": pa.float64(),
    "integer": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
_MICROS: Final = range(-(1 << 63), 1 << 63)


def type_of(value: FieldValue) -> FieldType:
    """The type that a field gets by its first value."""
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "float"
    return "string"


@dataclass(slots=True)
class NewColumns:
    """Columns that a stream lacks."""

    tags: dict[str, None] = field(default_factory=dict)
    fields: dict[str, FieldType] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tags or self.fields)

    @classmethod
    def of(cls, points: Iterable[InfluxPoint]) -> NewColumns:
        """All columns of the points. A name that is a tag first is one."""
        found = cls()
        for point in points:
            for tag in point.tags:
                if _usable(tag) and tag not in found.fields:
                    found.tags[tag] = None
            for name, value in point.fields.items():
                if _usable(name) and name not in found.tags:
                    found.fields.setdefault(name, type_of(value))
        return found

    def schema(self, time: str | None = None) -> pa.Schema:
        """The columns, `time` first if there is to be such a one."""
        times = [] if time is None else [pa.field(time, TIME_TYPE)]
        tags = [pa.field(tag, pa.string()) for tag in self.tags]
        return pa.schema([*times, *tags, *(pa.field(name, _TYPES[kind]) for name, kind in self.fields.items())])

    def label(self, tags: Mapping[str, str]) -> dict[str, str]:
        """The tags of the stream, with those of these fields that are texts."""
        texts = text_fields(tags)
        texts += [name for name, kind in self.fields.items() if kind == "string" and name not in texts]
        return {**tags, TEXT_FIELDS: ",".join(texts)} if texts else dict(tags)


class PointTable:
    """Points as rows of a stream. Those that do not fit its columns are left out: `problems` says why, `dropped` how many
    they are. `new` are the columns that the stream lacks."""

    def __init__(self, info: StreamInfo, points: Iterable[InfluxPoint], unit: int, now: int) -> None:
        """`unit` is the unit of the times in nanoseconds, `now` in microseconds the time of points without one."""
        if info.schema.raw:
            raise InvalidArgument(f"'{info.name}' is a raw stream: the line protocol is for streams with columns")
        if info.schema.time is None:
            raise InvalidArgument(f"'{info.name}' has no event time, which points have")
        self._info = info
        self._time = info.schema.time
        self._unit, self._now = unit, now
        self.new = NewColumns()
        self.problems: list[str] = []
        self.dropped = 0
        texts = text_fields(info.tags)
        self._kinds: dict[str, FieldType | None] = {}
        for column in info.schema.columns:
            kind = field_type(column.type)
            self._kinds[column.name] = None if kind == "string" and column.name not in texts else kind
        self._tags = {column.name for column in info.schema.columns if pa.types.is_string(column.type)} - set(texts)
        self._rows = [row for point in points if (row := self._row(point)) is not None]

    def batch(self) -> pa.RecordBatch:
        """The rows. Raises InvalidArgument for a number that its column can't hold."""
        try:
            return pa.RecordBatch.from_pylist(self._rows, schema=self._info.schema.columns)
        except (pa.ArrowException, OverflowError, ValueError) as exc:
            raise InvalidArgument(f"a value does not fit its column: {exc}") from exc

    def _row(self, point: InfluxPoint) -> dict[str, Any] | None:
        at = self._now if point.at is None else point.at * self._unit // 1_000
        problem = None if at in _MICROS else f"unable to parse '{point.line:.200}': time outside range"
        for tag in point.tags:
            problem = problem or self._tag_problem(tag)
        for name, value in point.fields.items():
            problem = problem or self._field_problem(name, value)
        if problem is not None:
            self.problems.append(problem)
            self.dropped += 1
            return None
        return {self._time: at, **point.tags, **point.fields}

    def _tag_problem(self, tag: str) -> str | None:
        if tag in self._tags or tag in self.new.tags:
            return None
        if not _usable(tag) or tag in self._kinds or tag in self.new.fields:
            return f'invalid tag key: input tag "{tag}" on measurement "{self._info.name.name}" is the name of another column'
        self.new.tags[tag] = None
        return None

    def _field_problem(self, name: str, value: FieldValue) -> str | None:
        kind, measurement = type_of(value), self._info.name.name
        known = self._kinds.get(name) or self.new.fields.get(name)
        if known == kind:
            return None
        if known is not None and name != self._time:
            return (
                f'field type conflict: input field "{name}" on measurement "{measurement}" is type {kind}, '
                f"already exists as type {known}"
            )
        if not _usable(name) or name in self._kinds or name in self.new.tags:
            return (
                f'invalid field name: input field "{name}" on measurement "{measurement}" is the name of another column'
            )
        self.new.fields[name] = kind
        return None


def _usable(name: str) -> bool:
    return name not in (*RESERVED, "time") and "," not in name
