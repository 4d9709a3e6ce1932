"""Distinct values by theta sketches, as Spark's `theta_sketch_agg` makes them; they have set operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.errors import InvalidArgument
from anabranch.errors.optional import optional
from anabranch.sketches.layout import THETA, not_a_sketch, raw
from anabranch.sketches.values import deviations, hashable, present, whole

with optional("theta sketches", "sketches"):
    from datasketches import compact_theta_sketch, theta_a_not_b, theta_union, update_theta_sketch
    from datasketches import theta_intersection as intersection_of

__all__ = ["LG_K", "bounds", "build", "difference", "estimate", "intersection", "union"]

LG_K: Final = 12
"""log2 of the nominal entries: 4,096, for a standard error of 1.6 % of a sketch or a union."""


def build(values: Iterable[object], lg_k: int = LG_K) -> bytes:
    """A sketch of integers, floating-point numbers, texts or bytes; None is left out. `lg_k` from 5 to 26. Raises
    InvalidArgument."""
    sketch = update_theta_sketch(whole("lgNomEntries", lg_k, 5, 26))
    for value in hashable(values, "a theta sketch", floats=True):
        sketch.update(value)
    return _serialized(sketch.compact())


def union(sketches: Iterable[bytes | None], lg_k: int = LG_K) -> bytes:
    """The union of the sketches. Nulls are skipped. Raises InvalidArgument."""
    merged = theta_union(whole("lgNomEntries", lg_k, 5, 26))
    for sketch in map(_read, present(sketches)):
        merged.update(sketch)
    return _serialized(merged.get_result())


def intersection(sketches: Iterable[bytes | None]) -> bytes:
    """The intersection of the sketches. Nulls are skipped; without any sketch the result is empty. Raises
    InvalidArgument."""
    merged = intersection_of()
    for sketch in map(_read, present(sketches)):
        merged.update(sketch)
    return _serialized(merged.get_result()) if merged.has_result() else build(())


def difference(first: bytes, second: bytes) -> bytes:
    """The difference: what is in the first sketch and not in the second. Raises InvalidArgument."""
    return _serialized(theta_a_not_b().compute(_read(first), _read(second)))


def estimate(sketch: bytes) -> int:
    """About how many distinct values are in it. Raises InvalidArgument."""
    return round(float(_read(sketch).get_estimate()))


def bounds(sketch: bytes, std_devs: int = 2) -> tuple[float, float]:
    """The lower and the upper bound of the number of distinct values, at 1, 2 or 3 standard deviations (68, 95 or 99.7 %).
    Raises InvalidArgument."""
    found, devs = _read(sketch), deviations(std_devs)
    return found.get_lower_bound(devs), found.get_upper_bound(devs)


def _serialized(sketch: compact_theta_sketch) -> bytes:
    return bytes(sketch.serialize(compress=True))


def _read(sketch: bytes) -> compact_theta_sketch:
    data = raw(sketch, THETA)
    try:
        return compact_theta_sketch.deserialize(data)
    except ValueError as exc:
        if "seed hash" in str(exc):
            raise InvalidArgument(
                "the theta sketch was made with another seed than 9001, that of Spark and of DataSketches"
            ) from exc
        raise not_a_sketch("a theta", data) from exc
    except (IndexError, RuntimeError) as exc:
        raise not_a_sketch("a theta", data) from exc
