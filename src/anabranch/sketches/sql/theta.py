"""`theta_…`: distinct values, with set operations."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.sketches import theta
from anabranch.sketches.sql.function import BOUNDS, SketchFunction, bounds

__all__ = ["FUNCTIONS"]


_LG: Final = "lgNomEntries"
_BINARY: Final = pa.binary()

FUNCTIONS: Final = (
    SketchFunction("theta_sketch_agg", theta.build, _BINARY, ("expr", _LG), (theta.LG_K,), "distinct"),
    SketchFunction("theta_union_agg", theta.union, _BINARY, ("expr", _LG), (theta.LG_K,), "all"),
    SketchFunction("theta_intersection_agg", theta.intersection, _BINARY, ("expr",), gathers="all"),
    SketchFunction("theta_union", theta.union, _BINARY, ("first", "second", _LG), (theta.LG_K,), merges_two=True),
    SketchFunction("theta_intersection", theta.intersection, _BINARY, ("first", "second"), merges_two=True),
    SketchFunction("theta_difference", theta.difference, _BINARY, ("first", "second")),
    SketchFunction("theta_sketch_estimate", theta.estimate, pa.int64(), ("expr",)),
    SketchFunction("theta_sketch_bounds", bounds(theta.bounds), BOUNDS, ("expr", "stdDevs"), (2,)),
)
