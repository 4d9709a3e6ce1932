"""Whether a value was there, by Bloom filters that pipelines make with `bloom_sketch_agg`.

A filter answers yes for every value that was there, and for others with a probability that it can tell (`error`). It has
parts of 32,768 bits, in each of which every value sets one: by default eight parts, 32 KiB, for 27,000 values with 1 % of
wrong answers. Each part is a bitmap of Spark's `bitmap_construct_agg`, so that Spark makes filters by its own means.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from anabranch.errors import InvalidArgument
from anabranch.sketches.layout import not_a_sketch
from anabranch.sketches.values import hashable, present, whole

__all__ = ["HEADER", "PARTS", "PARTS_MAX", "build", "contains", "error", "estimate", "expression", "union"]

HEADER: Final = b"BLOOM\x01"
PARTS: Final = 8
PARTS_MAX: Final = 8
_BYTES: Final = 4_096
_BITS: Final = 8 * _BYTES
_OF_A_HASH: Final = 4  # a hash of 64 bits has four numbers of 15
_SEED: Final = 42


def expression(value: str, parts: int = PARTS) -> str:
    """The SQL of Spark for the filter of a column's values, given as SQL. Its text is hashed, so an integer and its digits are
    the same; null is left out."""
    text = f"CAST(({value}) AS STRING)"
    hashes = [f"xxhash64({text})", f"xxhash64({text}, 1)"]
    bits = [
        f"bitmap_construct_agg(IF(({value}) IS NULL, NULL, "
        f"shiftrightunsigned({hashes[part // _OF_A_HASH]}, {15 * (part % _OF_A_HASH)}) & {_BITS - 1}))"
        for part in range(parts)
    ]
    return f"concat(X'{HEADER.hex().upper()}', {', '.join(bits)})"


def build(values: Iterable[object], parts: int = PARTS) -> bytes:
    """A filter of integers, text or bytes; None is left out. `parts` from 1 to 8. Raises InvalidArgument."""
    filled = np.zeros((whole("parts", parts, 1, PARTS_MAX), _BYTES), np.uint8)
    for value in hashable(values, "a Bloom filter"):
        for part, bit in enumerate(_bits(value, parts)):
            filled[part, bit >> 3] |= 1 << (bit & 7)
    return HEADER + filled.tobytes()


def union(sketches: Iterable[bytes | None], parts: int = PARTS) -> bytes:
    """The filter of what is in any of them; None is left out, and of nothing it is an empty filter of so many parts. Raises
    InvalidArgument, also if they differ in parts."""
    merged: npt.NDArray[np.uint8] | None = None
    for filled in map(_read, present(sketches)):
        if merged is None:
            merged = filled
        elif len(merged) != len(filled):
            raise InvalidArgument(f"Bloom filters of {len(merged)} and of {len(filled)} parts can't be merged")
        else:
            merged = merged | filled
    return build((), parts) if merged is None else HEADER + merged.tobytes()


def contains(sketch: bytes, value: object) -> bool:
    """False if the value was not there; true if it was, and now and then if it was not. Raises InvalidArgument."""
    filled = _read(sketch)
    found = list(hashable([value], "a Bloom filter"))
    if not found:
        raise InvalidArgument("whether null was there is not in a Bloom filter")
    return all(filled[part, bit >> 3] >> (bit & 7) & 1 for part, bit in enumerate(_bits(found[0], len(filled))))


def error(sketch: bytes) -> float:
    """The probability that it says yes of a value that was not there. Raises InvalidArgument."""
    return float(np.prod(_fill(_read(sketch))))


def estimate(sketch: bytes) -> int:
    """About how many distinct values were there; the most that it can tell if all its bits are set. Raises InvalidArgument."""
    free = 1 - float(_fill(_read(sketch)).mean())
    return round(math.log(max(free, 1 / _BITS)) / math.log1p(-1 / _BITS))


def _fill(filled: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = np.unpackbits(filled, axis=1).mean(axis=1)
    return shares


def _bits(value: object, parts: int) -> list[int]:
    first = xxhash.xxh64_intdigest(str(value).encode(), seed=_SEED)
    # Spark hashes several columns one after the other, each with the hash before as seed.
    second = xxhash.xxh64_intdigest((1).to_bytes(4, "little"), seed=first)
    return [(first, second)[part // _OF_A_HASH] >> 15 * (part % _OF_A_HASH) & (_BITS - 1) for part in range(parts)]


def _read(sketch: object) -> npt.NDArray[np.uint8]:
    if not isinstance(sketch, bytes | bytearray | memoryview):
        raise InvalidArgument(f"expected the bytes of a Bloom filter, found {type(sketch).__name__}")
    data = bytes(sketch)
    parts, rest = divmod(len(data) - len(HEADER), _BYTES)
    if not data.startswith(HEADER) or rest or not 1 <= parts <= PARTS_MAX:
        raise not_a_sketch("a Bloom", data)
    return np.frombuffer(data, np.uint8, offset=len(HEADER)).reshape(parts, _BYTES)
