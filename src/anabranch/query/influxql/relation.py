"""What a SELECT reads: the events of a stream, or the results of subqueries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

from anabranch.query.influxql.times import TimeRange

FieldType = Literal["float", "integer", "string", "boolean"]

CONSTANT_TYPES: Final[Mapping[type, FieldType]] = {bool: "boolean", int: "integer", float: "float", str: "string"}


class Columns(Protocol):
    """The tags and the fields that there are."""

    @property
    def tags(self) -> Sequence[str]:
        """Their names, in order."""
        ...

    @property
    def fields(self) -> Mapping[str, FieldType]:
        """The types by the names."""
        ...


class RowColumns(Columns, Protocol):
    """Columns of rows, in SQL."""

    @property
    def of_subquery(self) -> bool:
        """Whether the rows are results of subqueries. InfluxDB shows them if they are empty too, and takes a boolean that
        they don't have for false in a condition."""
        ...

    def column(self, field: str) -> str:
        """The value of a field that there is."""
        ...

    def tag(self, name: str) -> str:
        """The value of a tag, the empty text where there is none."""
        ...


class SourceRelation(RowColumns, Protocol):
    """Rows with a time. The methods return SQL of DuckDB for a query over `table`."""

    @property
    def name(self) -> str:
        """The name of the measurement."""
        ...

    @property
    def table(self) -> str:
        """What FROM names."""
        ...

    @property
    def row_time(self) -> str:
        """The time of a row in microseconds."""
        ...

    def shown_tag(self, name: str) -> str:
        """The value of a tag as a column of a result."""
        ...

    def order(self, *, descending: bool) -> Sequence[str]:
        """How the rows of one series follow each other."""
        ...

    def in_time(self, times: TimeRange) -> str | None:
        """The condition that a row is in the time range, or None if all rows are."""
        ...

    def of_window_beyond(self, beyond: bool, times: TimeRange) -> str:
        """The condition that a row counts for a call that needs the window beside the time range, or does not."""
        ...
