"""`count_min_…`: how often values occur; `bloom_…`: whether one did. Of these Spark has `count_min_sketch` alone, and pipelines
`bloom_sketch_agg`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from anabranch.sketches import bloom, count_min
from anabranch.sketches.sql.function import SketchFunction, counted

__all__ = ["FUNCTIONS"]


def _build(counts: Iterable[dict[str, Any]], eps: float, confidence: float, seed: int) -> bytes:
    return count_min.build(counted(counts), float(eps), float(confidence), seed)


def _union(sketches: Iterable[bytes | None]) -> bytes | None:
    known = [each for each in sketches if each is not None]
    return count_min.union(known) if known else None


_BINARY: Final = pa.binary()

FUNCTIONS: Final = (
    SketchFunction("count_min_sketch", _build, _BINARY, ("expr", "eps", "confidence", "seed"), gathers="counts"),
    SketchFunction("count_min_union_agg", _union, _BINARY, ("expr",), gathers="all"),
    SketchFunction("count_min_union", count_min.union, _BINARY, ("first", "second"), merges_two=True),
    SketchFunction("count_min_sketch_estimate", count_min.estimate, pa.int64(), ("sketch", "item")),
    SketchFunction("count_min_sketch_count", count_min.count, pa.int64(), ("sketch",)),
    SketchFunction("count_min_sketch_error", count_min.error, pa.float64(), ("sketch",)),
    SketchFunction("bloom_sketch_agg", bloom.build, _BINARY, ("expr", "parts"), (bloom.PARTS,), "distinct"),
    SketchFunction("bloom_union_agg", bloom.union, _BINARY, ("expr",), gathers="all"),
    SketchFunction("bloom_union", bloom.union, _BINARY, ("first", "second"), merges_two=True),
    SketchFunction("bloom_sketch_contains", bloom.contains, pa.bool_(), ("sketch", "item")),
    SketchFunction("bloom_sketch_estimate", bloom.estimate, pa.int64(), ("sketch",)),
    SketchFunction("bloom_sketch_error", bloom.error, pa.float64(), ("sketch",)),
)
