"""Reads the metadata of a Parquet file without reading the file."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.blobs.port import Blobs
from anabranch.errors import BlobMissing, CorruptBlob
from anabranch.log.parquet.bounds import refuse_footer

__all__ = ["read_footer"]

_FOOTER_BYTES: Final = 64 * 1024  # read at once: most footers are smaller
_TRAILER_BYTES: Final = 8  # the footer's length, 4 bytes, and the format's name


def read_footer(blobs: Blobs, key: str) -> Any:
    """The Parquet metadata of a file (`pyarrow.parquet.FileMetaData`). Reads only the footer, because a file in a bucket
    may be large. Raises BlobMissing, and CorruptBlob if the footer claims too much."""
    size = blobs.size(key)
    if size is None:
        raise BlobMissing(key)
    start = max(size - _FOOTER_BYTES, 0)
    end = blobs.get(key, start, size - start)
    refuse_footer(key, pa.py_buffer(end))
    length = _TRAILER_BYTES + int.from_bytes(memoryview(end)[-_TRAILER_BYTES:-4], "little")
    if length > size:
        raise CorruptBlob(key, "its footer is longer than the file")
    if length > len(memoryview(end)):
        end = blobs.get(key, size - length, length)
    return pq.read_metadata(pa.BufferReader(end))
