"""The most frequent values, by frequent-items sketches as Spark's `approx_top_k_accumulate` makes them.

The bytes don't contain the type of the items, so the reader of a sketch must name it. Spark's struct has it beside the
bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from anabranch.errors.optional import optional
from anabranch.sketches.layout import TOP_K, check_top_k, not_a_sketch, raw
from anabranch.sketches.values import hashable, occurrences, present, whole

with optional("top-k sketches", "sketches"):
    from datasketches import (
        PyDoublesSerDe,
        PyIntsSerDe,
        PyLongsSerDe,
        frequent_items_error_type,
        frequent_items_sketch,
        frequent_strings_sketch,
    )

__all__ = ["ITEMS", "ITEMS_MAX", "Frequent", "ItemType", "build", "count", "error", "frequent", "item_of", "union"]

ItemType: TypeAlias = Literal["string", "bigint", "int", "double"]

ITEMS: Final = 10_000
"""How many items are tracked by default; no count is then wrong by more than 1 in 4,681 of all occurrences."""
ITEMS_MAX: Final = 1_000_000
_SERDES: Final[Mapping[ItemType, Any]] = {"bigint": PyLongsSerDe, "int": PyIntsSerDe, "double": PyDoublesSerDe}
_WIDTHS: Final[Mapping[ItemType, int | None]] = {"string": None, "bigint": 8, "int": 4, "double": 8}


@dataclass(frozen=True, slots=True)
class Frequent:
    """An item, about how often it occurs, and the least and the most that may be."""

    item: Any
    count: int
    lower: int
    upper: int


def build(values: Iterable[object] | Mapping[Any, int], items_max: int = ITEMS) -> bytes:
    """A sketch of texts, integers or numbers, or of how often each of them occurs; None is left out. It tracks
    `items_max` items. Raises InvalidArgument."""
    kept = occurrences(values, "a top-k sketch")
    sketch = _new(item_of(kept), _lg_size(items_max))
    for item, number in zip(hashable(kept, "a top-k sketch", floats=True), kept.values(), strict=True):
        sketch.update(item, number)
    return _serialized(sketch, item_of(kept))


def item_of(values: Iterable[object]) -> ItemType:
    """The type of the items of a sketch that is built of these values."""
    first = next(present(values), None)
    return "bigint" if isinstance(first, int) else "double" if isinstance(first, float) else "string"


def union(sketches: Iterable[bytes | None], item: ItemType, items_max: int | None = None) -> bytes:
    """The sketch of all occurrences; None is left out. It tracks `items_max` items; None: as many as the first sketch.
    Raises InvalidArgument."""
    merged = None if items_max is None else _new(item, _lg_size(items_max))
    for data in present(sketches):
        sketch = _read(data, item)
        if merged is None:
            merged = _new(item, raw(data, TOP_K)[3])
        merged.merge(sketch)
    return _serialized(merged or _new(item, _lg_size(ITEMS)), item)


def frequent(sketch: bytes, k: int, item: ItemType) -> list[Frequent]:
    """The `k` most frequent items, at most: only those whose count is certainly above the sketch's `error`. The
    most frequent first. Raises InvalidArgument."""
    found = _read(sketch, item).get_frequent_items(frequent_items_error_type.NO_FALSE_POSITIVES)
    ranked = sorted((Frequent(*each) for each in found), key=lambda each: (-each.count, str(each.item)))
    return ranked[: whole("k", k, 1, ITEMS_MAX)]


def count(sketch: bytes, item: ItemType) -> int:
    """How many occurrences of any item it has seen. Raises InvalidArgument."""
    return int(_read(sketch, item).total_weight)


def error(sketch: bytes, item: ItemType) -> int:
    """By how much a count may be too high; an item that is not tracked occurs at most this often. Raises
    InvalidArgument."""
    _read(sketch, item)
    data = raw(sketch, TOP_K)
    return 0 if len(data) < 32 else int.from_bytes(data[24:32], "little")


def _lg_size(items_max: int) -> int:
    return max(3, math.ceil(math.log2(math.ceil(whole("maxItemsTracked", items_max, 1, ITEMS_MAX) / 0.75))))


def _new(item: ItemType, lg_size: int) -> Any:
    return frequent_strings_sketch(lg_size) if item == "string" else frequent_items_sketch(lg_size)


def _serialized(sketch: Any, item: ItemType) -> bytes:
    return bytes(sketch.serialize() if item == "string" else sketch.serialize(_SERDES[item]()))


def _read(sketch: bytes, item: ItemType) -> Any:
    data = raw(sketch, TOP_K)
    check_top_k(data, _WIDTHS[item])
    try:
        if item == "string":
            return frequent_strings_sketch.deserialize(data)
        return frequent_items_sketch.deserialize(data, _SERDES[item]())
    except (IndexError, RuntimeError, ValueError) as exc:
        raise not_a_sketch("a top-k", data) from exc
