"""How often values occur, by count-min sketches in the bytes of Spark's `count_min_sketch`.

An estimate is never too low. It is too high by more than `eps` of all occurrences for no more than one value in
`1 / (1 - confidence)`. Only sketches of the same `eps`, `confidence` and `seed` are merged.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch.errors import InvalidArgument
from anabranch.sketches.layout import not_a_sketch, plain_bytes
from anabranch.sketches.values import hashable, occurrences, present, whole

__all__ = ["build", "count", "error", "estimate", "union"]

_HEADER: Final = struct.Struct(">iqii")  # version, total, depth, width
_VERSION: Final = 1
_CELLS_MAX: Final = 1 << 24
_PRIME: Final = (1 << 31) - 1

Values = Iterable[object] | Mapping[Any, int]


@dataclass(frozen=True, slots=True)
class _Sketch:
    total: int
    seeds: npt.NDArray[np.int64]
    table: npt.NDArray[np.int64]


def build(values: Values, eps: float, confidence: float, seed: int) -> bytes:
    """A sketch of integers, text or bytes, or of how often each of them occurs; None is left out. Raises InvalidArgument."""
    if not 0 < eps <= 1 or not 0 < confidence < 1:
        raise InvalidArgument(
            f"eps is a number above 0 and up to 1, confidence one between 0 and 1, not {eps}, {confidence}"
        )
    depth, width = math.ceil(-math.log(1 - confidence) / math.log(2)), math.ceil(2 / eps)
    if depth * width > _CELLS_MAX:
        raise InvalidArgument(f"a count-min sketch has at most {_CELLS_MAX:,} cells; raise eps, or lower confidence")
    sketch = _Sketch(
        0, _seeds(whole("seed", seed, -(1 << 31), (1 << 31) - 1), depth), np.zeros((depth, width), np.int64)
    )
    counts = occurrences(values, "a count-min sketch")
    for key, number in zip(_keys(counts), counts.values(), strict=True):
        sketch.table[np.arange(depth), _cells(key, sketch)] += number
    return _serialized(sum(counts.values()), sketch)


def union(sketches: Iterable[bytes | None]) -> bytes:
    """The sketch of all occurrences; None is left out. Raises InvalidArgument, also where there is no sketch."""
    merged: _Sketch | None = None
    for sketch in map(_read, present(sketches)):
        if merged is None:
            merged = sketch
        elif merged.table.shape != sketch.table.shape or (merged.seeds != sketch.seeds).any():
            raise InvalidArgument("count-min sketches of another eps, confidence or seed can't be merged")
        else:
            merged = _Sketch(merged.total + sketch.total, merged.seeds, merged.table + sketch.table)
    if merged is None:
        raise InvalidArgument("expected at least one count-min sketch, got none")
    return _serialized(merged.total, merged)


def estimate(sketch: bytes, value: object) -> int:
    """About how often the value occurs, never too low. Raises InvalidArgument."""
    found = _read(sketch)
    keys = list(_keys([value]))
    if not keys:
        raise InvalidArgument("a count-min sketch does not count nulls")
    return int(found.table[np.arange(len(found.seeds)), _cells(keys[0], found)].min())


def count(sketch: bytes) -> int:
    """How many occurrences of any value it has seen. Raises InvalidArgument."""
    return _read(sketch).total


def error(sketch: bytes) -> float:
    """An upper bound for the error of an estimate, which holds for each value with the sketch's confidence. Raises
    InvalidArgument."""
    found = _read(sketch)
    return float(2 / found.table.shape[1] * found.total)


def _keys(values: Iterable[object]) -> Iterable[int | bytes]:
    for value in hashable(values, "a count-min sketch"):
        yield value if isinstance(value, int) else str(value).encode()


def _cells(key: int | bytes, sketch: _Sketch) -> npt.NDArray[np.int64]:
    """The cell of the key in each row, computed as Spark does."""
    depth, width = sketch.table.shape
    if isinstance(key, int):
        with np.errstate(over="ignore"):
            mixed = sketch.seeds * np.int64(key)
            mixed = (mixed + (mixed >> 32)) & _PRIME
        cells: npt.NDArray[np.int64] = mixed % width
        return cells
    first = _murmur3(key, 0)
    second = _murmur3(key, first)
    wrapped = [_int32(first + row * second) for row in range(depth)]
    return np.array([abs(int(math.fmod(each, width))) for each in wrapped], np.int64)


def _seeds(seed: int, depth: int) -> npt.NDArray[np.int64]:
    """The first numbers below 2^31 - 1 of Java's `Random(seed)`."""
    state, mask = (seed ^ 0x5DEECE66D) & (1 << 48) - 1, (1 << 48) - 1
    found: list[int] = []
    while len(found) < depth:
        state = (state * 0x5DEECE66D + 0xB) & mask
        if (bits := state >> 17) != _PRIME:
            found.append(bits)
    return np.array(found, np.int64)


def _int32(number: int) -> int:
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number >= 1 << 31 else number


def _murmur3(data: bytes, seed: int) -> int:
    """Spark's Murmur3: of 32 bits, where each byte after the last whole word is mixed in as a word, with its sign."""
    aligned = len(data) - len(data) % 4
    words = [
        *struct.unpack_from(f"<{aligned // 4}I", data),
        *(each - 256 if each > 127 else each for each in data[aligned:]),
    ]
    mixed = seed & 0xFFFFFFFF
    for word in words:
        part = word * 0xCC9E2D51 & 0xFFFFFFFF
        part = (part << 15 | part >> 17) * 0x1B873593 & 0xFFFFFFFF
        mixed ^= part
        mixed = ((mixed << 13 | mixed >> 19) * 5 + 0xE6546B64) & 0xFFFFFFFF
    mixed ^= len(data)
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return _int32(mixed ^ mixed >> 16)


def _serialized(total: int, sketch: _Sketch) -> bytes:
    depth, width = sketch.table.shape
    return (
        _HEADER.pack(_VERSION, total, depth, width)
        + sketch.seeds.astype(">i8").tobytes()
        + sketch.table.astype(">i8").tobytes()
    )


def _read(sketch: object) -> _Sketch:
    data = plain_bytes(sketch, "a count-min sketch")
    if len(data) >= _HEADER.size:
        version, total, depth, width = _HEADER.unpack_from(data)
        good = version == _VERSION and total >= 0 and depth > 0 and width > 0
        if good and len(data) == _HEADER.size + 8 * depth * (width + 1):
            numbers = np.frombuffer(data, ">i8", offset=_HEADER.size).astype(np.int64)
            seeds, table = numbers[:depth], numbers[depth:].reshape(depth, width)
            # Each occurrence is in one cell of each row.
            if (table >= 0).all() and (table.sum(axis=1) == total).all():
                return _Sketch(total, seeds, table)
    raise not_a_sketch("a count-min", data)
