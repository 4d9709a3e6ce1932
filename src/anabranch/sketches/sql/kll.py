"""`kll_…_bigint`, `kll_…_double` and `kll_…_float`: quantiles and ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from anabranch.sketches import kll
from anabranch.sketches.sql.function import SketchFunction

__all__ = ["FUNCTIONS"]

_ITEMS: Final[tuple[tuple[kll.ItemType, pa.DataType], ...]] = (
    ("bigint", pa.int64()),
    ("double", pa.float64()),
    ("float", pa.float32()),
)
_FROM_FIRST: Final = 0  # default of `k`: the first sketch's


def _functions(item: kll.ItemType, kind: pa.DataType) -> Iterator[SketchFunction]:
    def build(values: Iterable[object], k: int) -> bytes:
        return kll.build(values, item, k)

    def merge(sketches: Iterable[bytes | None], k: int) -> bytes:
        return kll.union(sketches, item, k or None)

    binary, one = pa.binary(), ("expr",)
    yield SketchFunction(f"kll_sketch_agg_{item}", build, binary, ("expr", "k"), (kll.K,), "all")
    yield SketchFunction(f"kll_merge_agg_{item}", merge, binary, ("expr", "k"), (_FROM_FIRST,), "all")
    union = partial(kll.union, item=item)
    yield SketchFunction(f"kll_sketch_merge_{item}", union, binary, ("left", "right"), merges_two=True)
    yield SketchFunction(f"kll_sketch_get_n_{item}", partial(kll.count, item=item), pa.int64(), one)
    yield SketchFunction(f"kll_sketch_get_quantile_{item}", partial(kll.quantile, item=item), kind, ("left", "right"))
    yield SketchFunction(f"kll_sketch_get_rank_{item}", partial(kll.rank, item=item), pa.float64(), ("left", "right"))
    yield SketchFunction(f"kll_sketch_get_rank_error_{item}", partial(kll.rank_error, item=item), pa.float64(), one)


FUNCTIONS: Final = tuple(function for item, kind in _ITEMS for function in _functions(item, kind))
