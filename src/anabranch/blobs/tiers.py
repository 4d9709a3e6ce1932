"""Tier 1 and tier 2 in different blob stores, chosen by the key's prefix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge

import pyarrow as pa

from anabranch.blobs.keys import HISTORY
from anabranch.blobs.port import BlobInfo, Blobs


class TieredBlobs:
    """`blobs.port.Blobs` over two others: compacted files are in `history`, all other blobs in `fresh`.

    Keys that are in the wrong one of the two are not visible: a store always uses the addresses it was created with.
    """

    def __init__(self, fresh: Blobs, history: Blobs) -> None:
        self._fresh = fresh
        self._history = history

    def _of(self, key: str) -> Blobs:
        return self._history if key.startswith(HISTORY) else self._fresh

    def put(self, key: str, chunks: Sequence[pa.Buffer | bytes]) -> None:
        self._of(key).put(key, chunks)

    def get(self, key: str, offset: int = 0, length: int | None = None) -> pa.Buffer:
        return self._of(key).get(key, offset, length)

    def size(self, key: str) -> int | None:
        return self._of(key).size(key)

    def list(self, prefix: str = "") -> Iterator[BlobInfo]:
        if prefix.startswith(HISTORY):
            return self._history.list(prefix)
        fresh = (blob for blob in self._fresh.list(prefix) if not blob.key.startswith(HISTORY))
        if not HISTORY.startswith(prefix):
            return fresh
        return merge(fresh, self._history.list(HISTORY))

    def delete(self, key: str) -> None:
        self._of(key).delete(key)

    def path(self, key: str) -> str:
        return self._of(key).path(key)

    def close(self) -> None:
        self._fresh.close()
        self._history.close()
