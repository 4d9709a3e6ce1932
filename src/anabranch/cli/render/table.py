"""A result as a table for people."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from anabranch.cli.output import strong
from anabranch.cli.render.sink import Sink, TextRenderer
from anabranch.cli.render.values import dump, iso, json_number
from anabranch.core.python_values import python_values
from anabranch.core.terminal import terminal_text

__all__ = ["TableRenderer"]

_PAGE_ROWS: Final = 200  # rows of a table; realigned only if a column gets wider
_CELL_CHARS_MAX: Final = 60


class TableRenderer(TextRenderer):
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
        value = json_number(value) if isinstance(value, float) else value
        text = "-" if value is None else value if isinstance(value, str) else dump(value)
        text = terminal_text(text)
        return text if len(text) <= self._cells else text[: self._cells - 1] + "…"

    def close(self) -> None:
        if not any(self._widths):
            self._page([[] for _ in self._names])


def _plain(column: pa.Array) -> list[Any]:
    """Returns a column's values in a form for people."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return list(iso(column))
    if pa.types.is_time(kind):
        return [None if value is None else str(value) for value in python_values(column)]
    if pa.types.is_decimal(kind):
        return [None if value is None else str(value) for value in column.to_pylist()]
    return [
        value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
        for value in python_values(column)
    ]
