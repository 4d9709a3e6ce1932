"""Distinct values by HyperLogLog sketches, as Spark's `hll_sketch_agg` makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.sketches.layout import HLL, check_hll, not_a_sketch, raw
from anabranch.sketches.values import deviations, hashable, present, whole

with optional("HLL sketches", "sketches"):
    from datasketches import HLL_8, hll_sketch, hll_union

__all__ = ["LG_K", "bounds", "build", "estimate", "union"]

LG_K: Final = 12
"""log2 of the number of registers: 4,096, for a standard error of 1.6 %."""


def build(values: Iterable[object], lg_k: int = LG_K) -> bytes:
    """A sketch of integers, texts or bytes; None is left out. `lg_k` from 4 to 21. Raises InvalidArgument."""
    sketch = hll_sketch(whole("lgConfigK", lg_k, 4, 21), HLL_8)
    for value in hashable(values, "an HLL sketch"):
        sketch.update(value)
    return bytes(sketch.serialize_updatable())


def union(sketches: Iterable[bytes | None], *, allow_different_lg_k: bool = False) -> bytes:
    """The union of the sketches. Nulls are skipped; without any sketch the result is empty. Sketches with
    different `lg_k` are refused, or with `allow_different_lg_k` merged with the lesser one. Raises InvalidArgument."""
    merged: hll_union | None = None
    first = LG_K
    for sketch in map(_read, present(sketches)):
        if merged is None:
            first, merged = sketch.lg_config_k, hll_union(sketch.lg_config_k)
        if sketch.lg_config_k != first and not allow_different_lg_k:
            raise InvalidArgument(
                f"the HLL sketches have different lgConfigK, {first} and {sketch.lg_config_k}; to merge them all the same, with "
                "the lesser one, pass true as allowDifferentLgConfigK"
            )
        merged.update(sketch)
    return bytes((merged or hll_union(LG_K)).get_result(HLL_8).serialize_updatable())


def estimate(sketch: bytes) -> int:
    """About how many distinct values it has seen. Raises InvalidArgument."""
    return round(float(_read(sketch).get_estimate()))


def bounds(sketch: bytes, std_devs: int = 2) -> tuple[float, float]:
    """The lower and the upper bound of the number of distinct values, at 1, 2 or 3 standard deviations (68, 95 or 99.7 %).
    Raises InvalidArgument."""
    found, devs = _read(sketch), deviations(std_devs)
    return found.get_lower_bound(devs), found.get_upper_bound(devs)


def _read(sketch: bytes) -> hll_sketch:
    data = raw(sketch, HLL)
    check_hll(data)
    try:
        return hll_sketch.deserialize(data)
    except (IndexError, RuntimeError, ValueError) as exc:
        raise not_a_sketch("an HLL", data) from exc
