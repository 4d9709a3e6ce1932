"""The columns that a statement reads: of the events of a stream, or of the results of subqueries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol

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
