"""Routing: from a key to its point, from points to segments. A key's point never changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from anabranch import limits
from anabranch.errors import InvalidKey, TooLarge
from anabranch.model.keyspace import KeyRange

Points = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.integer[Any]]

_GOLDEN: Final = 0x9E3779B97F4A7C15  # 2**64 / φ: its multiples are spread evenly over the key space (Knuth, TAOCP 6.4)
_MASK: Final = (1 << 64) - 1


RoutingKey = str | int | bool | date | UUID  # and None; see `key_text`


def key_text(key: Any) -> str | None:
    """A key's canonical text. Raises InvalidKey.

    Text is unchanged; integers are decimal; booleans are `true` and `false`; dates are ISO 8601 (`2026-01-31`); UUIDs
    are lower-case with hyphens; None stays None. Floats, bytes and containers have no canonical text.
    """
    if key is None or type(key) is str:
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str):
        return str.__str__(key)  # not a subclass's `str`: an enumeration's would be its name
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, UUID):
        return str(key)
    if isinstance(key, date) and not isinstance(key, datetime):
        return key.isoformat()
    raise InvalidKey(f"a {type(key).__name__} can't be a routing key: use text, an integer, a bool, a date or a UUID")


def check_key(text: str) -> None:
    """Raise InvalidKey or TooLarge if a key's text can't be stored."""
    if not text.isascii() or len(text) > limits.KEY_BYTES_MAX:
        _utf8(text)


def check_keys(keys: pa.ChunkedArray) -> None:
    """Raise InvalidKey or TooLarge if a key of the column can't be stored."""
    for chunk in keys.chunks:
        _encoded(chunk)


def point_of(text: str) -> int:
    """The key's point: xxh3-64, seed 0, of its UTF-8 bytes."""
    return xxhash.xxh3_64_intdigest(text.encode())


def spread_point(count: int) -> int:
    """The point of the `count`-th event without a key: successive points are spread evenly over the key space."""
    return count * _GOLDEN & _MASK


@dataclass(frozen=True, slots=True)
class KeyPoints:
    """The key points of a column's rows, each distinct point stored once: row i has point `points[codes[i]]`. So
    routing costs one look-up per row, while hashing and searching are done once per key."""

    points: Points
    codes: Codes

    def __len__(self) -> int:
        return len(self.codes)

    def per_row(self) -> Points:
        """The point of each row."""
        found: Points = self.points[self.codes]
        return found

    def select(self, rows: npt.NDArray[np.intp]) -> KeyPoints:
        """The points of some rows, without unused points: otherwise `points` would grow when rows are selected and joined
        again and again."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return KeyPoints(self.points[used], codes)

    def locate(self, ranges: Sequence[KeyRange]) -> npt.NDArray[np.uint16]:
        """The index of the range of each row; `ranges` are in order and cover the key space once."""
        lows = np.array([r.low for r in ranges], dtype=np.uint64)
        # 16 bits: a stream has fewer segments, and numpy sorts such numbers by radix, several times faster.
        where = (np.searchsorted(lows, self.points, side="right") - 1).astype(np.uint16)
        found: npt.NDArray[np.uint16] = where[self.codes]
        return found

    @staticmethod
    def concat(parts: Sequence[KeyPoints]) -> KeyPoints:
        """The points of several columns, concatenated."""
        begins = np.cumsum([0, *(len(part.points) for part in parts[:-1])])
        codes = [part.codes + begin for part, begin in zip(parts, begins, strict=True)]
        return KeyPoints(np.concatenate([part.points for part in parts]), np.concatenate(codes))


def key_points(keys: pa.Array, *, spread_from: int) -> KeyPoints:
    """The points of a key column, in row order; null keys are spread, counted from `spread_from`. Raises InvalidKey,
    TooLarge."""
    if not _usable(keys.type):
        raise InvalidKey(f"a column of type {keys.type} can't be the routing key")
    coded = keys.dictionary_encode()
    texts = _utf8_texts(coded.dictionary)
    points = np.fromiter(map(xxhash.xxh3_64_intdigest, texts), dtype=np.uint64, count=len(texts))
    if not coded.null_count:
        return KeyPoints(points, coded.indices.to_numpy())
    nulls = np.asarray(coded.indices.is_null().to_numpy(zero_copy_only=False))
    count = int(nulls.sum())
    codes = coded.indices.fill_null(0).to_numpy().copy()
    codes[nulls] = np.arange(len(points), len(points) + count)
    return KeyPoints(np.concatenate([points, spread_points(count, spread_from)]), codes)


def spread_points(count: int, start: int) -> Points:
    """`spread_point` for each of `start` … `start + count - 1`."""
    with np.errstate(over="ignore"):
        return (np.arange(count, dtype=np.uint64) + np.uint64(start & _MASK)) * np.uint64(_GOLDEN)


def _usable(kind: pa.DataType) -> bool:
    types = pa.types
    text = types.is_string(kind) or types.is_large_string(kind)
    return bool(text or types.is_boolean(kind) or types.is_integer(kind) or types.is_date(kind))


def _utf8_texts(keys: pa.Array) -> list[bytes]:
    """The keys' canonical texts as UTF-8 bytes, as Arrow holds them: decoding each would take ten times as long."""
    return [text for text in _encoded(keys).to_pylist() if text is not None]


def key_texts(keys: pa.Array) -> pa.Array:
    """The canonical texts of a key column, as `key_text` returns each."""
    if pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type):
        return keys
    return pc.cast(keys, pa.string())  # Arrow's casts of these are the canonical texts


def _encoded(keys: pa.Array) -> pa.Array:
    """The keys' canonical texts as a column of bytes. Raises InvalidKey, TooLarge."""
    keys = key_texts(keys)
    try:
        keys.validate(full=True)
    except pa.ArrowInvalid as exc:
        raise InvalidKey(f"expected routing keys in UTF-8: {exc}") from exc
    texts = keys.cast(pa.large_binary() if pa.types.is_large_string(keys.type) else pa.binary())
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    if longest > limits.KEY_BYTES_MAX:
        raise TooLarge("a routing key", longest, limits.KEY_BYTES_MAX)
    return texts


def _utf8(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidKey(f"can't encode the routing key {text[:40]!a} as UTF-8: {exc.reason}") from exc
    if len(data) > limits.KEY_BYTES_MAX:
        raise TooLarge("a routing key", len(data), limits.KEY_BYTES_MAX)
    return data
