"""`hll_…`: distinct values by HyperLogLog."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from anabranch.sketches import hll
from anabranch.sketches.sql.function import BOUNDS, SketchFunction, bounds

__all__ = ["FUNCTIONS"]


def _union(sketches: Iterable[bytes | None], allow: object) -> bytes:
    return hll.union(sketches, allow_different_lg_k=bool(allow))


_ALLOW: Final = "allowDifferentLgConfigK"

FUNCTIONS: Final = (
    SketchFunction("hll_sketch_agg", hll.build, pa.binary(), ("expr", "lgConfigK"), (hll.LG_K,), "distinct"),
    SketchFunction("hll_union_agg", _union, pa.binary(), ("expr", _ALLOW), (False,), "all"),
    SketchFunction("hll_union", _union, pa.binary(), ("first", "second", _ALLOW), (False,), merges_two=True),
    SketchFunction("hll_sketch_estimate", hll.estimate, pa.int64(), ("expr",)),
    SketchFunction("hll_sketch_bounds", bounds(hll.bounds), BOUNDS, ("expr", "stdDevs"), (2,)),
)
