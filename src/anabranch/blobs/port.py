"""The blob port: the interface that every blob store (folder, object store, memory) implements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa


class BlobInfo(NamedTuple):
    """A blob in a listing; `size` in bytes."""

    key: str
    size: int


class Blobs(Protocol):
    """Immutable blobs. Keys are `/`-separated paths of `[a-z0-9._-]`; the store writes each key at most once. Attached
    files and archives may have other names.

    No call reaches outside of the adapter's root: a key that is not a plain relative path, or that leads out of a
    folder through a symbolic link, raises CorruptBlob (see `blobs.keys.check_path`)."""

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        """Write the chunks one after another as a new blob. Returns once durable: the whole blob survives a crash.
        Raises AlreadyExists if the key is taken, DiskFull, ReadOnlyStore, StoreUnavailable."""

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        """`length` bytes of a blob from `offset` (None: to its end), without a copy if the adapter can. Raises
        BlobMissing, and CorruptBlob if the blob is too short."""

    def size(self, key: str) -> int | None:
        """A blob's size in bytes, or None if it does not exist."""

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        """All blobs under a prefix, in key order."""

    def delete(self, key: str) -> None:
        """Remove a blob. Unknown keys are ignored."""

    def path(self, key: str) -> str:
        """The blob's file path or URL, for engines such as Spark or DuckDB that read it directly."""

    def close(self) -> None:
        """Release memory maps and connections. A second close is harmless."""
