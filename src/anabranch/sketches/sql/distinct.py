"""`hll_…` and `theta_…`: distinct values, by HyperLogLog, and by sketches with set operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from anabranch.sketches import hll, theta
from anabranch.sketches.sql.function import BOUNDS, SketchFunction, bounds

__all__ = ["FUNCTIONS"]


def _union(sketches: Iterable[bytes | None], allow: object) -> bytes:
    return hll.union(sketches, allow_different_lg_k=bool(allow))


_ALLOW: Final = "allowDifferentLgConfigK"
_LG: Final = "lgNomEntries"
_BINARY: Final = pa.binary()

FUNCTIONS: Final = (
    SketchFunction("hll_sketch_agg", hll.build, _BINARY, ("expr", "lgConfigK"), (hll.LG_K,), "distinct"),
    SketchFunction("hll_union_agg", _union, _BINARY, ("expr", _ALLOW), (False,), "all"),
    SketchFunction("hll_union", _union, _BINARY, ("first", "second", _ALLOW), (False,), merges_two=True),
    SketchFunction("hll_sketch_estimate", hll.estimate, pa.int64(), ("expr",)),
    SketchFunction("hll_sketch_bounds", bounds(hll.bounds), BOUNDS, ("expr", "stdDevs"), (2,)),
    SketchFunction("theta_sketch_agg", theta.build, _BINARY, ("expr", _LG), (theta.LG_K,), "distinct"),
    SketchFunction("theta_union_agg", theta.union, _BINARY, ("expr", _LG), (theta.LG_K,), "all"),
    SketchFunction("theta_intersection_agg", theta.intersection, _BINARY, ("expr",), gathers="all"),
    SketchFunction("theta_union", theta.union, _BINARY, ("first", "second", _LG), (theta.LG_K,), merges_two=True),
    SketchFunction("theta_intersection", theta.intersection, _BINARY, ("first", "second"), merges_two=True),
    SketchFunction("theta_difference", theta.difference, _BINARY, ("first", "second")),
    SketchFunction("theta_sketch_estimate", theta.estimate, pa.int64(), ("expr",)),
    SketchFunction("theta_sketch_bounds", bounds(theta.bounds), BOUNDS, ("expr", "stdDevs"), (2,)),
)
