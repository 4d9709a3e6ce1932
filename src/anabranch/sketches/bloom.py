"""Whether a value occurred, by Bloom filters that pipelines make with `bloom_sketch_agg`.

A filter answers yes for every value that occurred, and for others with a probability that it can report (`error`). It
has parts of 32,768 bits: by default eight, 32 KiB, for 27,000 values with 1 % of wrong answers. After a header its
bytes are those of Spark's `BloomFilter` (version 2, in `org.apache.spark.util.sketch`), of hashes of the values' texts.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from anabranch.errors import InvalidArgument
from anabranch.sketches.layout import not_a_sketch, plain_bytes
from anabranch.sketches.values import hashable, present, whole

__all__ = ["AGGREGATE", "HEADER", "PARTS", "PARTS_MAX", "build", "contains", "error", "estimate", "expression", "union"]

HEADER: Final = b"BLOOM\x02"
PARTS: Final = 8
PARTS_MAX: Final = 256
AGGREGATE: Final = "bloom_filter_agg"
"""The name of Spark's aggregate function, which `anabranch.spark.pipelines.analyze` makes known to a session."""
_BYTES: Final = 4_096
_BITS: Final = 8 * _BYTES
_VALUES: Final = 3_375  # for which one part has 1 % of wrong answers; from it Spark derives how many bits a value sets
_BITS_OF_A_VALUE: Final = 7
_BITS_OF_A_VALUE_MAX: Final = 64
_VERSION: Final = 2
_LAYOUT: Final = struct.Struct(">iiii")  # version, bits of a value, seed, words
_SEED: Final = 42  # of the hash of a value's text, as in xxhash64() of Spark

Longs = npt.NDArray[np.int64]


def expression(value: str, parts: int = PARTS) -> str:
    """The SQL of Spark for the filter of a column's values, given as SQL. Its text is hashed, so an integer and its
    digits are the same; null is left out."""
    # The hash of null is not null.
    hashed = f"IF(({value}) IS NULL, NULL, xxhash64(CAST(({value}) AS STRING)))"
    filled = f"{AGGREGATE}({hashed}, {_VALUES * parts}L, {_BITS * parts}L)"
    empty = f"concat(X'{_layout(parts).hex().upper()}', unhex(repeat('00', {_BYTES * parts})))"
    return f"concat(X'{HEADER.hex().upper()}', coalesce({filled}, {empty}))"


def build(values: Iterable[object], parts: int = PARTS) -> bytes:
    """A filter of integers, text or bytes; None is left out. `parts` from 1 to 256. Raises InvalidArgument."""
    words = np.zeros(_BITS // 64 * whole("parts", parts, 1, PARTS_MAX), np.uint64)
    filled = _Filter(_BITS_OF_A_VALUE, 0, words)
    places = filled.places(_hashes(values))
    np.bitwise_or.at(words, places >> 6, np.uint64(1) << (places & 63).astype(np.uint64))
    return filled.to_bytes()


def union(sketches: Iterable[bytes | None], parts: int = PARTS) -> bytes:
    """The union of the filters. Nulls are skipped; without any filter the result is an empty filter of this many parts.
    Raises InvalidArgument, also if they differ in parts."""
    merged: _Filter | None = None
    for each in map(_read, present(sketches)):
        if merged is None:
            merged = each
        elif (len(merged.words), merged.bits, merged.seed) != (len(each.words), each.bits, each.seed):
            raise InvalidArgument(f"Bloom filters of {merged.parts:g} and of {each.parts:g} parts can't be merged")
        else:
            merged = _Filter(merged.bits, merged.seed, merged.words | each.words)
    return build((), parts) if merged is None else merged.to_bytes()


def contains(sketch: bytes, value: object) -> bool:
    """True if the value occurred. If it did not, false, except with the probability `error`. Raises InvalidArgument."""
    filled, hashes = _read(sketch), _hashes([value])
    if not len(hashes):
        raise InvalidArgument("a Bloom filter does not record whether null occurred")
    places = filled.places(hashes)
    return bool((filled.words[places >> 6] >> (places & 63).astype(np.uint64) & np.uint64(1)).all())


def error(sketch: bytes) -> float:
    """The probability that `contains` is true for a value that did not occur. Raises InvalidArgument."""
    filled = _read(sketch)
    return float(filled.full**filled.bits)


def estimate(sketch: bytes) -> int:
    """About how many distinct values occurred; if all bits are set, the largest count that the filter can report. Raises
    InvalidArgument."""
    filled = _read(sketch)
    size = 64 * len(filled.words)
    return round(math.log(max(1 - filled.full, 1 / size)) / math.log1p(-1 / size) / filled.bits)


def _layout(parts: int) -> bytes:
    return _LAYOUT.pack(_VERSION, _BITS_OF_A_VALUE, 0, _BITS // 64 * parts)


@dataclass(frozen=True, slots=True)
class _Filter:
    """A filter. Each value sets `bits` of the bits in `words`."""

    bits: int
    seed: int
    words: npt.NDArray[np.uint64]

    @property
    def parts(self) -> float:
        return 64 * len(self.words) / _BITS

    @property
    def full(self) -> float:
        """The share of bits that are set."""
        return float(np.unpackbits(self.words.view(np.uint8)).mean())

    def places(self, hashes: Longs) -> Longs:
        """The bits that values with these hashes set, as Spark's `BloomFilterImplV2` has it."""
        first = _murmur3(hashes, np.full(len(hashes), self.seed, np.int64).astype(np.uint32))
        second = _murmur3(hashes, first)
        signed = (each.view(np.int32).astype(np.int64) for each in (first, second))
        high, low = signed
        sums = high[:, None] * np.int64((1 << 31) - 1) + low[:, None] * np.arange(1, self.bits + 1)
        found: Longs = (np.where(sums < 0, ~sums, sums) % (64 * len(self.words))).ravel()
        return found

    def to_bytes(self) -> bytes:
        layout = _LAYOUT.pack(_VERSION, self.bits, self.seed, len(self.words))
        return HEADER + layout + self.words.astype(">u8").tobytes()


def _hashes(values: Iterable[object]) -> Longs:
    found = [xxhash.xxh64_intdigest(str(value).encode(), seed=_SEED) for value in hashable(values, "a Bloom filter")]
    return np.array(found, np.uint64).view(np.int64)


def _murmur3(values: Longs, seeds: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The 32-bit hashes of 64-bit integers, as `Murmur3_x86_32.hashLong` of Spark."""
    hashed = seeds
    for half in (values & 0xFFFFFFFF, values >> 32 & 0xFFFFFFFF):
        mixed = _rotated(half.astype(np.uint32) * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashed = _rotated(hashed ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashed = hashed ^ np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashed = (hashed ^ hashed >> np.uint32(shift)) * np.uint32(factor)
    return hashed ^ hashed >> np.uint32(16)


def _rotated(values: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return values << np.uint32(by) | values >> np.uint32(32 - by)


def _read(sketch: object) -> _Filter:
    data = plain_bytes(sketch, "a Bloom filter")
    if not data.startswith(HEADER) or len(data) < len(HEADER) + _LAYOUT.size:
        raise not_a_sketch("a Bloom", data)
    version, bits, seed, words = _LAYOUT.unpack_from(data, len(HEADER))
    first = len(HEADER) + _LAYOUT.size
    good = version == _VERSION and 1 <= bits <= _BITS_OF_A_VALUE_MAX and words > 0 and len(data) - first == 8 * words
    if not good:
        raise not_a_sketch("a Bloom", data)
    return _Filter(bits, seed, np.frombuffer(data, ">u8", offset=first).astype(np.uint64))
