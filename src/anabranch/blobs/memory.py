"""Blobs in memory, for tests and for stores that end with their process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch.blobs.keys import check_path, check_prefix
from anabranch.blobs.port import BlobInfo
from anabranch.errors import AlreadyExists, BlobMissing, CorruptBlob, StoreUnavailable


class MemoryBlobs:
    """`blobs.port.Blobs` in a dictionary."""

    def __init__(self) -> None:
        self._blobs: dict[str, pa.Buffer] = {}

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        whole = pa.py_buffer(b"".join(bytes(memoryview(chunk)) for chunk in chunks))
        if self._blobs.setdefault(check_path(key), whole) is not whole:
            raise AlreadyExists(f"blob {key} exists already")

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        whole = self._blobs.get(check_path(key))
        if whole is None:
            raise BlobMissing(key)
        if length is None:
            return whole.slice(offset)
        if offset + length > whole.size:
            raise CorruptBlob(key, f"expected {offset + length} bytes, found {whole.size}")
        return whole.slice(offset, length)

    def size(self, key: str) -> int | None:
        whole = self._blobs.get(check_path(key))
        return None if whole is None else int(whole.size)

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        check_prefix(prefix)
        for key in sorted(self._blobs):
            if key.startswith(prefix) and (whole := self._blobs.get(key)) is not None:
                yield BlobInfo(key, whole.size)

    def delete(self, key: str) -> None:
        self._blobs.pop(check_path(key), None)

    def path(self, key: str) -> str:
        """Blobs in memory have no path: raises StoreUnavailable."""
        raise StoreUnavailable("a store in memory has no files that another engine could read; use a folder")

    def close(self) -> None:
        """See the port."""
