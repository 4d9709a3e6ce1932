"""Quantiles by KLL sketches of numbers, as Spark's `kll_sketch_agg_bigint`, `_double` and `_float` make them.

The bytes don't say whether 8-byte items are integers or floating-point numbers. The reader of a sketch must name the
type: use the same type for building, merging and reading, as in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.sketches.layout import KLL, check_kll, not_a_sketch, raw
from anabranch.sketches.values import fraction, present, whole

with optional("KLL sketches", "sketches"):
    from datasketches import PyLongsSerDe, kll_doubles_sketch, kll_floats_sketch, kll_items_sketch

__all__ = ["ItemType", "K", "build", "count", "quantile", "rank", "rank_error", "union"]

ItemType: TypeAlias = Literal["bigint", "double", "float"]

K: Final = 200
"""The default parameter, for a rank error of 1.33 % with 99 % confidence."""
_ITEMS: Final[Mapping[ItemType, np.dtype[Any]]] = {
    "bigint": np.dtype(np.int64),
    "double": np.dtype(np.float64),
    "float": np.dtype(np.float32),
}
_CLASSES: Final[Mapping[ItemType, Any]] = {
    "bigint": kll_items_sketch,
    "double": kll_doubles_sketch,
    "float": kll_floats_sketch,
}


def build(values: Iterable[object], item: ItemType, k: int = K) -> bytes:
    """A sketch of numbers; None and NaN are left out. `k` from 8 to 65,535. Raises InvalidArgument."""
    sketch = _class(item)(whole("k", k, 8, 65_535))
    kept = list(present(values))
    # numpy would parse texts and cut off fractions.
    for kind in dict.fromkeys(map(type, kept)):
        if not issubclass(kind, int if item == "bigint" else (int, float)) or kind is bool:
            raise InvalidArgument(
                f"a KLL sketch ({item}) takes numbers of that type, not {kind.__name__}; cast the values"
            )
    try:
        with np.errstate(over="raise"):
            numbers = np.array(kept, _ITEMS[item])
    except (FloatingPointError, OverflowError) as exc:
        raise InvalidArgument(f"a KLL sketch ({item}) takes numbers of that type only: {exc}") from exc
    if item == "bigint":
        for number in numbers.tolist():
            sketch.update(number)
    elif len(numbers):
        sketch.update(numbers)
    return _serialized(sketch)


def union(sketches: Iterable[bytes | None], item: ItemType, k: int | None = None) -> bytes:
    """The sketch of all their values together; nulls are skipped. `k`, and with it the accuracy, is taken from the first
    sketch, unless given. Raises InvalidArgument."""
    kind = _class(item)
    merged = None if k is None else kind(whole("k", k, 8, 65_535))
    for data in present(sketches):
        sketch = _read(data, item)
        if merged is None:
            merged = kind(sketch.k)
        merged.merge(sketch)
    return _serialized(merged or kind(K))


def count(sketch: bytes, item: ItemType) -> int:
    """How many numbers it has seen. Raises InvalidArgument."""
    return int(_read(sketch, item).n)


def quantile(sketch: bytes, rank: float, item: ItemType) -> float:
    """Approximately the number at or below which this share of all numbers lies. Raises InvalidArgument, also if it is
    empty."""
    number = _non_empty(sketch, item).get_quantile(fraction("the rank of a quantile", rank), inclusive=True)
    return int(number) if item == "bigint" else float(number)


def rank(sketch: bytes, value: float, item: ItemType) -> float:
    """The share of all numbers that are less than or equal to the value, about. Raises InvalidArgument, also if it is
    empty."""
    found = _non_empty(sketch, item)
    if not isinstance(value, int | float) or value != value:
        raise InvalidArgument(f"expected a number to find the rank of, got {value}")
    try:
        return float(found.get_rank(value if item == "bigint" else float(value), inclusive=True))
    except OverflowError as exc:
        raise InvalidArgument("expected a number that fits a double to find the rank of, got one beyond it") from exc


def rank_error(sketch: bytes, item: ItemType) -> float:
    """By how much a rank may be wrong, with 99 % confidence, as a share of all numbers; 0 as long as it holds them all. Raises
    InvalidArgument."""
    found = _read(sketch, item)
    return float(found.normalized_rank_error(False)) if found.is_estimation_mode() else 0.0


def _class(item: ItemType) -> Any:
    """The class of sketches of such items. Raises InvalidArgument."""
    if item not in tuple(_CLASSES):
        raise InvalidArgument(f"a KLL sketch is one of {', '.join(_CLASSES)}, not of {item!r:.100}")
    return _CLASSES[item]


def _non_empty(sketch: bytes, item: ItemType) -> Any:
    found = _read(sketch, item)
    if found.is_empty():
        raise InvalidArgument("the KLL sketch is empty, so it has no quantiles and no ranks")
    return found


def _serialized(sketch: Any) -> bytes:
    return bytes(sketch.serialize(PyLongsSerDe()) if isinstance(sketch, kll_items_sketch) else sketch.serialize())


def _read(sketch: bytes, item: ItemType) -> Any:
    kind = _class(item)
    data = raw(sketch, KLL)
    check_kll(data, _ITEMS[item])
    try:
        if item == "bigint":
            return kll_items_sketch.deserialize(data, PyLongsSerDe())
        return kind.deserialize(data)
    except (IndexError, RuntimeError, ValueError) as exc:
        raise not_a_sketch(f"a KLL ({item})", data) from exc
