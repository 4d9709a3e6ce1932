"""`theta_…`: distinct values, with set operations."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.sketches import theta
from anabranch.sketches.sql.function import BOUNDS, SketchFunction, bounds

__all__ = ["FUNCTIONS"]


def _union_of_two(first: bytes, second: bytes, lg_k: int) -> bytes:
    return theta.union((first, second), lg_k)


def _intersection_of_two(first: bytes, second: bytes) -> bytes:
    return theta.intersection((first, second))


_LG: Final = "lgNomEntries"
_BINARY: Final = pa.binary()

FUNCTIONS: Final = (
    SketchFunction("theta_sketch_agg", theta.build, _BINARY, ("expr", _LG), (theta.LG_K,), "distinct"),
    SketchFunction("theta_union_agg", theta.union, _BINARY, ("expr", _LG), (theta.LG_K,), "all"),
    SketchFunction("theta_intersection_agg", theta.intersection, _BINARY, ("expr",), gathers="all"),
    SketchFunction("theta_union", _union_of_two, _BINARY, ("first", "second", _LG), (theta.LG_K,)),
    SketchFunction("theta_intersection", _intersection_of_two, _BINARY, ("first", "second")),
    SketchFunction("theta_difference", theta.difference, _BINARY, ("first", "second")),
    SketchFunction("theta_sketch_estimate", theta.estimate, pa.int64(), ("expr",)),
    SketchFunction("theta_sketch_bounds", bounds(theta.bounds), BOUNDS, ("expr", "stdDevs"), (2,)),
)
