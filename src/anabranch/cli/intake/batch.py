"""What an intake yields: batches of rows, and rows that can't be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import pyarrow as pa

from anabranch.cli.intake.source import BadInput
from anabranch.errors import InvalidArgument
from anabranch.model.columns import RESERVED

ADDED = (*RESERVED, "_pointer")  # columns that reading adds, so that what was read can be written again

Unit = Literal["line", "row"]


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that can't be written: its number in the input, from 1, and why. `text` is the record as it stands in the
    file; `values` are those of a row that could be read, as a batch of one."""

    unit: Unit
    number: int
    why: str
    text: bytes | None = None
    values: pa.Table | None = None

    @property
    def place(self) -> str:
        """Where it is: `line 17`."""
        return f"{self.unit} {self.number}" if self.unit == "line" else f"{self.unit} {self.number:,}"


class IntakeBatch(NamedTuple):
    """Rows of a stream's columns, or some of them. `number(i)` is the line, or row of the file, where row i was
    found."""

    rows: pa.Table
    unit: Unit
    number: Callable[[int], int]

    def bad_row(self, row: int, error: InvalidArgument) -> BadRow:
        """The row as one that can't be written."""
        return BadRow(self.unit, self.number(row), str(error), values=self.rows.slice(row, 1))


def all_valid(items: Iterable[IntakeBatch | BadRow]) -> Iterator[pa.Table]:
    """The rows of the batches. Raises BadInput for a row that can't be read."""
    for item in items:
        if isinstance(item, BadRow):
            raise BadInput(item.place, item.why)
        yield item.rows


def without_added(table: pa.Table) -> pa.Table:
    """Returns the table without the columns that reading adds."""
    return table.drop_columns([name for name in table.column_names if name in ADDED])
