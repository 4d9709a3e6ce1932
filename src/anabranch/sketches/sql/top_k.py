"""`approx_top_k_…`: the most frequent values. DuckDB has an `approx_top_k` of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, get_args

import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.sketches import top_k
from anabranch.sketches.sql.function import SketchFunction, counted

__all__ = ["FUNCTIONS"]

_ITEMS: Final[tuple[top_k.ItemType, ...]] = get_args(top_k.ItemType)
_STATE: Final = pa.struct(
    [
        pa.field("sketch", pa.binary()),
        pa.field("maxItemsTracked", pa.int32()),
        pa.field("itemDataType", pa.string()),
        pa.field("itemDataTypeDDL", pa.string()),
    ]
)
_FREQUENT: Final = pa.list_(pa.struct([pa.field("item", pa.string()), pa.field("count", pa.int64())]))
_FROM_FIRST: Final = 0  # default of maxItemsTracked: the number of the first sketch

State = Mapping[str, Any]


def _state(sketch: bytes, items_max: int, item: top_k.ItemType) -> State:
    return {
        "sketch": sketch,
        "maxItemsTracked": items_max,
        "itemDataType": None,
        "itemDataTypeDDL": f"item {item.upper()} NOT NULL",
    }


def _sketch(state: object) -> tuple[bytes, top_k.ItemType]:
    """The bytes, and the type of their items."""
    if not isinstance(state, Mapping) or not {"sketch", "itemDataTypeDDL"} <= set(state):
        raise InvalidArgument(f"expected a result of approx_top_k_accumulate, found {type(state).__name__}")
    found = re.match(r"item (\w+)", str(state["itemDataTypeDDL"]))
    item = next((each for each in _ITEMS if found and each == found[1].lower()), None)
    if item is None:
        raise InvalidArgument(
            f"items of a top-k sketch are {', '.join(_ITEMS)} here; cast the values to STRING in the pipeline"
        )
    return state["sketch"], item


def _accumulate(counts: Iterable[Mapping[str, Any]], items_max: int) -> State:
    found = counted(counts)
    return _state(top_k.build(found, items_max), items_max, top_k.item_of(found))


def _combine(states: Iterable[object], items_max: int) -> State | None:
    known = [each for each in states if each is not None]
    if not known:
        return None
    sketches, kinds = zip(*map(_sketch, known), strict=True)
    if len(set(kinds)) > 1:
        raise InvalidArgument(f"top-k sketches of {' and of '.join(sorted(set(kinds)))} can't be merged")
    first = known[0]
    assert isinstance(first, Mapping), "checked by _sketch"
    merged = top_k.union(sketches, kinds[0], items_max or None)
    return _state(merged, items_max or first.get("maxItemsTracked") or top_k.ITEMS, kinds[0])


def _estimate(state: object, k: int) -> list[Mapping[str, Any]]:
    sketch, item = _sketch(state)
    return [{"item": str(each.item), "count": each.count} for each in top_k.frequent(sketch, k, item)]


_MOST: Final = "maxItemsTracked"

FUNCTIONS: Final = (
    SketchFunction("approx_top_k_accumulate", _accumulate, _STATE, ("expr", _MOST), (top_k.ITEMS,), "counts"),
    SketchFunction("approx_top_k_combine", _combine, _STATE, ("state", _MOST), (_FROM_FIRST,), "all"),
    SketchFunction("approx_top_k_estimate", _estimate, _FREQUENT, ("state", "k"), (5,)),
    SketchFunction("approx_top_k_count", lambda state: top_k.count(*_sketch(state)), pa.int64(), ("state",)),
    SketchFunction("approx_top_k_error", lambda state: top_k.error(*_sketch(state)), pa.int64(), ("state",)),
)
