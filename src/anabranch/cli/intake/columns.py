"""The columns of the stream to which an input is written."""

from __future__ import annotations

import pyarrow as pa

from anabranch.cli.intake.batch import ADDED
from anabranch.errors import SchemaMismatch
from anabranch.model.columns import stored_type
from anabranch.model.schema import StreamSchema


class TargetColumns:
    """The columns into which rows are read. With `grow`, columns that only the input has are added, nullable. The stream
    itself is not changed here: the writer of the rows adds them."""

    def __init__(self, schema: StreamSchema, *, grow: bool = False) -> None:
        self.schema = schema
        self.grow = grow

    def lacking(self, names: list[str]) -> list[str]:
        """The names that are neither columns of the stream nor added by reading."""
        present = {*self.schema.columns.names, *ADDED}
        return [name for name in names if name not in present]

    def add(self, columns: pa.Schema) -> None:
        """Adds the columns that the stream lacks. Raises InvalidArgument."""
        fields = [pa.field(name, stored_type(columns.field(name))) for name in self.lacking(columns.names)]
        if fields:
            self.schema = self.schema.with_columns(pa.schema(fields))

    def unknown(self, name: str) -> SchemaMismatch:
        """The error for a column that the stream lacks."""
        expected = ", ".join(self.schema.columns.names)
        hint = "" if self.schema.raw else "; --add-columns adds it"
        return SchemaMismatch(f"unknown column '{name}'; the stream has {expected}{hint}", column=name)
