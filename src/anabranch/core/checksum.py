"""The checksum of stored bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    import pyarrow as pa


def checksum(data: pa.Buffer | bytes) -> int:
    """xxh3-64 (seed 0) of the bytes, as a signed 64-bit integer, the form that databases store."""
    digest = xxhash.xxh3_64_intdigest(data)
    return digest - (1 << 64) if digest >> 63 else digest
