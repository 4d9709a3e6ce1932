"""Finds large events in a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import TooLarge


class SizeRun(NamedTuple):
    """The rows `start <= row < stop` of a table. A `large` run is one row larger than the given limit."""

    start: int
    stop: int
    large: bool


def size_runs(table: pa.Table, bytes_max: int) -> list[SizeRun]:
    """Divide the rows of a table, in order, into runs: each row larger than `bytes_max` alone, the others in as few
    runs as possible."""
    found: list[SizeRun] = []
    begin = 0
    for row in _above(table, bytes_max, 0):
        if begin < row:
            found.append(SizeRun(begin, row, large=False))
        found.append(SizeRun(row, row + 1, large=True))
        begin = row + 1
    if begin < table.num_rows:
        found.append(SizeRun(begin, table.num_rows, large=False))
    return found


def oversized(table: pa.Table, event_bytes_max: int) -> TooLarge | None:
    """The error to raise for the first event that is too large, or None."""
    row = next(_above(table, event_bytes_max, 0), None)
    if row is None:
        return None
    weights = _weights(table.slice(row, 1))
    size, name = max((size, name) for name, size in weights.items())
    if size > event_bytes_max:
        return TooLarge(f"an event's column '{name}'", size, event_bytes_max)
    return TooLarge("an event", sum(weights.values()), event_bytes_max)


def _above(table: pa.Table, bytes_max: int, first: int) -> Iterator[int]:
    """The rows larger than `bytes_max`, counted from `first` on. As with single events, values of fixed width count as
    0.

    Halves the table as long as its bytes could be those of one such row, so it costs almost nothing if events are
    small.
    """
    if table.nbytes <= bytes_max:
        return
    if table.num_rows > 1:
        half = table.num_rows // 2
        yield from _above(table.slice(0, half), bytes_max, first)
        yield from _above(table.slice(half), bytes_max, first + half)
    elif sum(_weights(table).values()) > bytes_max:
        yield first


def _weights(table: pa.Table) -> dict[str, int]:
    return {name: sum(map(_weight, table.column(name).chunks)) for name in table.column_names}


def _weight(values: pa.Array, *, fixed: int = 0) -> int:
    """The bytes of the values; those of fixed width count `fixed` times."""
    kind, types = values.type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return pc.sum(pc.binary_length(values)).as_py() or 0
    if types.is_map(kind):
        edges = values.offsets  # keys and items belong to the whole array, of which this may be a slice
        part = slice(edges[0].as_py(), edges[-1].as_py())
        return _weight(values.keys[part], fixed=1) + _weight(values.items[part], fixed=1)
    if types.is_list(kind):
        return _weight(values.flatten(), fixed=1)
    if types.is_struct(kind):
        return sum(_weight(child, fixed=fixed) for child in values.flatten())
    return fixed * int(values.nbytes)
