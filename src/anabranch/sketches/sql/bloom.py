"""`bloom_…`: whether a value occurred. Spark has no such functions; pipelines have `bloom_sketch_agg`."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from anabranch.sketches import bloom
from anabranch.sketches.sql.function import SketchFunction

__all__ = ["FUNCTIONS"]


def _union_of_two(first: bytes, second: bytes) -> bytes:
    return bloom.union((first, second))


_BINARY: Final = pa.binary()

FUNCTIONS: Final = (
    SketchFunction("bloom_sketch_agg", bloom.build, _BINARY, ("expr", "parts"), (bloom.PARTS,), "distinct"),
    SketchFunction("bloom_union_agg", bloom.union, _BINARY, ("expr",), gathers="all"),
    SketchFunction("bloom_union", _union_of_two, _BINARY, ("first", "second")),
    SketchFunction("bloom_sketch_contains", bloom.contains, pa.bool_(), ("sketch", "item")),
    SketchFunction("bloom_sketch_estimate", bloom.estimate, pa.int64(), ("sketch",)),
    SketchFunction("bloom_sketch_error", bloom.error, pa.float64(), ("sketch",)),
)
