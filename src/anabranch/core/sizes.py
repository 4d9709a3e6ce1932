"""How large single events of a batch are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import TooLarge


def oversized(table: pa.Table, event_bytes_max: int) -> TooLarge | None:
    """What to raise for the first event that is too large, whatever its columns hold, or None. As with single events,
    values of a fixed width weigh nothing.

    Halves the table for as long as its bytes could be those of one event that is too large, so it costs next to
    nothing where events are small.
    """
    if table.nbytes <= event_bytes_max:
        return None
    if table.num_rows > 1:
        half = table.num_rows // 2
        return oversized(table.slice(0, half), event_bytes_max) or oversized(table.slice(half), event_bytes_max)
    weights = {name: _weight(table.column(name).combine_chunks()) for name in table.column_names}
    size, name = max((size, name) for name, size in weights.items())
    if size > event_bytes_max:
        return TooLarge(f"an event's column '{name}'", size, event_bytes_max)
    size = sum(weights.values())
    return TooLarge("an event", size, event_bytes_max) if size > event_bytes_max else None


def _weight(values: pa.Array, *, fixed: int = 0) -> int:
    """The bytes of the values; those of a fixed width count `fixed` times."""
    kind, types = values.type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return pc.sum(pc.binary_length(values)).as_py() or 0
    if types.is_map(kind):
        edges = values.offsets  # keys and items are those of the whole array, of which this may be a slice
        part = slice(edges[0].as_py(), edges[-1].as_py())
        return _weight(values.keys[part], fixed=1) + _weight(values.items[part], fixed=1)
    if types.is_list(kind):
        return _weight(values.flatten(), fixed=1)
    if types.is_struct(kind):
        return sum(_weight(child, fixed=fixed) for child in values.flatten())
    return fixed * int(values.nbytes)
