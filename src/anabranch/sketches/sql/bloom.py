"""`bloom_…`: whether a value occurred. Spark has no such functions; pipelines have `bloom_sketch_agg`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.sketches import bloom
from anabranch.sketches.sql.function import SketchFunction

__all__ = ["FUNCTIONS"]


_BINARY: Final = pa.binary()

FUNCTIONS: Final = (
    SketchFunction("bloom_sketch_agg", bloom.build, _BINARY, ("expr", "parts"), (bloom.PARTS,), "distinct"),
    SketchFunction("bloom_union_agg", bloom.union, _BINARY, ("expr",), gathers="all"),
    SketchFunction("bloom_union", bloom.union, _BINARY, ("first", "second"), merges_two=True),
    SketchFunction("bloom_sketch_contains", bloom.contains, pa.bool_(), ("sketch", "item")),
    SketchFunction("bloom_sketch_estimate", bloom.estimate, pa.int64(), ("sketch",)),
    SketchFunction("bloom_sketch_error", bloom.error, pa.float64(), ("sketch",)),
)
