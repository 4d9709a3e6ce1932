"""What a sketch's first bytes say, and the checks that a whole layout is consistent.

Apache DataSketches' C++ code reads beyond its input, or crashes, on bytes that only look like an HLL or KLL sketch. So bytes
are checked here before it sees them. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final

import numpy as np

from anabranch.errors import InvalidArgument

__all__ = [
    "HLL",
    "KLL",
    "THETA",
    "TOP_K",
    "check_hll",
    "check_kll",
    "check_top_k",
    "not_a_sketch",
    "plain_bytes",
    "raw",
]

# The family of a sketch of DataSketches is in byte 2.
THETA: Final = 3
HLL: Final = 7
TOP_K: Final = 10
KLL: Final = 15
_FAMILIES: Final[Mapping[int, str]] = {HLL: "an HLL", THETA: "a theta", TOP_K: "a top-k", KLL: "a KLL"}

_SQL_TYPES: Final[Mapping[str, str]] = {"int64": "bigint", "float64": "double", "float32": "float"}

_HLL_LIST, _HLL_SET, _HLL_ARRAY = 0, 1, 2
_HLL_8: Final = 2
_COMPACT: Final = 8
_KLL_EMPTY, _KLL_SINGLE = 1, 4
_TOP_K_EMPTY: Final = 4 | 1
_TOP_K_SPARE: Final = 8  # Java writes this many bytes more than needed


def raw(sketch: object, family: int) -> bytes:
    """The bytes of a sketch of a family. Raises InvalidArgument for another family, or for bytes that are not a sketch."""
    wanted = _FAMILIES[family]
    data = plain_bytes(sketch, f"{wanted} sketch")
    if len(data) < 8:
        raise not_a_sketch(wanted, data)
    if data[2] != family:
        other = _FAMILIES.get(data[2])
        if other is None:
            raise not_a_sketch(wanted, data)
        raise InvalidArgument(f"expected {wanted} sketch, found {other} sketch")
    return data


def plain_bytes(sketch: object, wanted: str) -> bytes:
    """The bytes of a sketch of any kind. Raises InvalidArgument for another type."""
    if not isinstance(sketch, bytes | bytearray | memoryview):
        raise InvalidArgument(f"expected the bytes of {wanted}, found {type(sketch).__name__}")
    return bytes(sketch)


def not_a_sketch(wanted: str, data: bytes) -> InvalidArgument:
    """The error for bytes that are no sketch, or a damaged one."""
    return InvalidArgument(f"expected the bytes of {wanted} sketch, found {len(data):,} bytes that are none")


def check_hll(data: bytes) -> None:
    """Check the layout of an HLL sketch with 8 bits a register, which is what Spark writes. Raises InvalidArgument."""
    lg_k, lg_array, flags, mode, target = data[3], data[4], data[5], data[7] & 3, data[7] >> 2 & 3
    if data[1] == 1 and target != _HLL_8:
        raise InvalidArgument("expected an HLL sketch with 8 bits a register (HLL_8), found one with 4 or 6")
    good = data[1] == 1 and 4 <= lg_k <= 21
    if good and mode == _HLL_LIST:
        count, size = data[6], len(data) - 8
        good = data[0] == 2 and lg_array == 3 and count <= 8 and size in (4 * count, 32)
        good = good and _coupons(data[8:]) == count and (size == 32) >= (not flags & _COMPACT)
    elif good and mode == _HLL_SET and len(data) >= 12:
        count, size = int.from_bytes(data[8:12], "little"), len(data) - 12
        good = data[0] == 3 and 5 <= lg_array <= max(lg_k - 3, 5) and count <= 3 << lg_array >> 2
        good = good and size == (4 * count if flags & _COMPACT else 4 << lg_array) and _coupons(data[12:]) == count
    elif good and mode == _HLL_ARRAY and len(data) == 40 + (1 << lg_k):
        registers = np.frombuffer(data, np.uint8, offset=40)
        zeros, other = struct.unpack_from("<2I", data, 32)
        good = data[0] == 10 and data[6] == 0 and other == 0
        good = good and np.count_nonzero(registers == 0) == zeros and int(registers.max()) <= 63
        good = good and bool(np.isfinite(np.frombuffer(data, np.float64, 3, 8)).all())
    else:
        good = False
    if not good:
        raise not_a_sketch("an HLL", data)


def _coupons(data: bytes) -> int:
    return int(np.count_nonzero(np.frombuffer(data, np.uint32)))


def check_kll(data: bytes, item: np.dtype[Any]) -> None:
    """Check the layout of a KLL sketch whose items have this type. Raises InvalidArgument."""
    size, flags = item.itemsize, data[3]
    k, m = struct.unpack_from("<HB", data, 4)
    good = k >= 8 and m == 8
    if flags & _KLL_EMPTY:
        good = good and data[:2] == b"\x02\x01" and len(data) == 8
    elif flags & _KLL_SINGLE:
        good = (
            good
            and data[:2] == b"\x02\x02"
            and len(data) == 8 + size
            and _has_total_order(np.frombuffer(data, item, 1, 8))
        )
    else:
        good = good and data[:2] == b"\x05\x01" and len(data) > 20 and _full_kll(data, item, k)
    if not good:
        raise not_a_sketch(f"a KLL ({_SQL_TYPES[item.name]})", data)


def _full_kll(data: bytes, item: np.dtype[Any], k: int) -> bool:
    n, k_min, levels = struct.unpack_from("<QHB", data, 8)
    first = 20 + 4 * levels
    if not (1 <= levels <= 61 and 8 <= k_min <= k and len(data) >= first):
        return False
    bounds = [*struct.unpack_from(f"<{levels}I", data, 20), _capacity(k, levels)]
    sizes = [after - before for before, after in pairwise(bounds)]
    retained = bounds[-1] - bounds[0]
    if min(sizes) < 0 or retained < 1 or len(data) != first + (retained + 2) * item.itemsize:
        return False
    items = np.frombuffer(data, item, retained + 2, first)
    lowest, highest, items = items[0], items[1], items[2:]
    if n != sum(count << level for level, count in enumerate(sizes)) or not _has_total_order(items):
        return False
    starts = [bound - bounds[0] for bound in bounds]
    parts = [items[begin:end] for begin, end in pairwise(starts[1:])]
    return bool(lowest <= items.min() and items.max() <= highest) and all(bool((p[:-1] <= p[1:]).all()) for p in parts)


def check_top_k(data: bytes, width: int | None) -> None:
    """Check the layout of a frequent-items sketch whose items have this many bytes each; None: they are texts, each after its
    length. Raises InvalidArgument."""
    lg_max, lg_size, flags = data[3], data[4], data[5]
    good = data[1] == 1 and 3 <= lg_size <= lg_max <= 21
    if data[0] == 1:
        good = good and len(data) in (8, 8 + _TOP_K_SPARE) and bool(flags & _TOP_K_EMPTY)
    elif good and data[0] == 4 and len(data) >= 32:
        active, _, total, offset = struct.unpack_from("<IIQQ", data, 8)
        items = 32 + 8 * active
        good = 0 < active <= 3 << lg_size >> 2 and len(data) >= items and total < 1 << 62 and offset < 1 << 62
        if good:
            counts = np.frombuffer(data, np.int64, active, 32)
            good = bool((counts > 0).all()) and float(counts.sum(dtype=np.float64)) <= total
            end = _end_of_texts(data, items, active) if width is None else items + width * active
            good = good and len(data) - end in (0, _TOP_K_SPARE)
    else:
        good = False
    if not good:
        raise not_a_sketch("a top-k", data)


def _end_of_texts(data: bytes, position: int, count: int) -> int:
    """The position after `count` texts, each after its length; beyond the end of the data if texts are missing."""
    for _ in range(count):
        length = int.from_bytes(data[position : position + 4], "little")
        text = data[position + 4 : position + 4 + length]
        position += 4 + length
        try:
            text.decode()
        except UnicodeDecodeError:
            return len(data) + 1
        if position > len(data):
            break
    return position


def _has_total_order(items: np.ndarray[Any, Any]) -> bool:
    """True if no item is NaN: with NaN the items have no total order."""
    return not bool(np.isnan(items).any()) if items.dtype.kind == "f" else True


def _capacity(k: int, levels: int) -> int:
    """The number of items for which a KLL sketch with `levels` levels has room."""
    return sum(max(8, _level_capacity(k, levels - level - 1)) for level in range(levels))


def _level_capacity(k: int, depth: int) -> int:
    if depth <= 30:
        return _shrunk(k, depth)
    return _shrunk(_shrunk(k, depth // 2), depth - depth // 2)


def _shrunk(k: int, depth: int) -> int:
    return int((2 * k << depth) // 3**depth + 1) >> 1
