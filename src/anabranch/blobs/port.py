"""The blob port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa


class BlobInfo(NamedTuple):
    """A blob in a listing; `size` in bytes."""

    key: str
    size: int


class Blobs(Protocol):
    """Immutable blobs. Keys are `/`-separated paths of `[a-z0-9._-]`; the store writes each key at most once."""

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """Write the chunks one after another as a new blob. Returns once durable: after a crash the whole blob is
        there. Raises AlreadyExists where the key is taken, DiskFull, ReadOnlyStore, StoreUnavailable."""
        ...

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """Bytes of a blob, zero-copy where the adapter can. Raises BlobMissing; CorruptBlob where the blob is shorter
        than asked."""
        ...

    def size(self, key: str) -> int | None:
        """A blob's size in bytes, or None where there is none."""
        ...

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """All blobs under a prefix, in key order."""
        ...

    def delete(self, key: str) -> None:
        """Remove a blob. Unknown keys are ignored."""
        ...

    def path(self, key: str) -> str:
        """Where an engine such as Spark or DuckDB finds the blob itself: a file path or URL."""
        ...

    def close(self) -> None:
        """Release maps and connections. A second close is harmless."""
        ...
