"""Fetching the bytes of extents, and making sure that they are those that were written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.core import codec
from anabranch.errors import AnabranchError, CorruptBlob
from anabranch.log.parquet import ParquetReader
from anabranch.log.plan import Piece
from anabranch.model.stream import Extent
from anabranch.runtime.ports import Runtime
from anabranch.runtime.tasks import Task

_Place = tuple[str, int]  # a blob's key and an offset in it
_WHOLE = -1  # stands for the offset of a whole file
_HELPERS_MAX = 2


class Fetcher:
    """Gives out the bytes of extents. A message's checksum is verified when the process first reads it.

    So is a tier-2 file's when it is first opened, and its pages' whenever they are read. Thread-safe.
    """

    def __init__(self, blobs: Blobs, runtime: Runtime) -> None:
        self._blobs = blobs
        self._tasks = runtime.tasks
        self._verified: dict[_Place, None] = {}
        self._files: dict[str, ParquetReader] = {}
        self._lock = runtime.tasks.lock()

    def messages(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, pa.Buffer | None]]:
        """Each piece with the verified message that holds it, or None for a Parquet extent.

        Where much is to be verified, helpers do so ahead of the caller, in windows of `limits.VERIFY_AHEAD_BYTES`;
        they have ended when the iterator has. Raises BlobMissing, CorruptBlob.
        """
        windows = list(self._windows(pieces))
        helpers: deque[Task] = deque()
        try:
            for number, window in enumerate(windows):
                ahead = window if number == 0 else []
                ahead = [*ahead, *(windows[number + 1] if number + 1 < len(windows) else ())]
                self._help(ahead, helpers)
                for piece in window:
                    yield piece, self.message(piece.extent)
        finally:
            for helper in helpers:
                helper.join()

    def message(self, extent: Extent) -> pa.Buffer | None:
        """The verified message of an Arrow extent, or None for a Parquet one. Raises BlobMissing, CorruptBlob."""
        if extent.data is not None:
            message = pa.py_buffer(extent.data)
            _verify(extent, message)
            return message
        if extent.encoding != "arrow":
            return None
        assert extent.key is not None
        message = self._blobs.get(extent.key, extent.place.offset, extent.place.length)
        place = (extent.key, extent.place.offset)
        if place not in self._verified:
            _verify(extent, message)
            self._remember(place)
        return message

    def parquet(
        self, extent: Extent, row: int, count: int, columns: pa.Schema
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Rows of a tier-2 file from `row` on, as batches of `columns` with their append times. Raises BlobMissing,
        CorruptBlob, FormatTooNew."""
        assert extent.key is not None
        with self._lock:
            file = self._files.pop(extent.key, None)
        # An opened file is for one iteration at a time, so it is out of the cache while it is in use.
        if file is None:
            data = self._blobs.get(extent.key)
            # The pages have checksums of their own, but what tells where they lie and what they mean has none.
            if (extent.key, _WHOLE) not in self._verified:
                _verify(extent, data)
                self._remember((extent.key, _WHOLE))
            file = ParquetReader(extent.key, data)
        try:
            yield from file.read(row, count, columns)
        finally:
            with self._lock:
                self._files[extent.key] = file
                while len(self._files) > limits.OPEN_PARQUET_MAX:
                    self._files.pop(next(iter(self._files)))

    def _windows(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        window: list[Piece] = []
        size = 0
        for piece in pieces:
            window.append(piece)
            size += piece.extent.place.length
            if size >= limits.VERIFY_AHEAD_BYTES:
                yield window
                window, size = [], 0
        if window:
            yield window

    def _help(self, pieces: Sequence[Piece], helpers: deque[Task]) -> None:
        fresh = [
            p.extent for p in pieces if p.extent.key and (p.extent.key, p.extent.place.offset) not in self._verified
        ]
        if sum(extent.place.length for extent in fresh) < limits.VERIFY_AHEAD_BYTES_MIN:
            return
        if len(helpers) >= _HELPERS_MAX:
            helpers.popleft().join()
        helpers.append(self._tasks.spawn("verify", lambda: self._verify_ahead(fresh)))

    def _verify_ahead(self, extents: Sequence[Extent]) -> None:
        try:
            # From the end, so that helper and reader meet instead of doing everything twice side by side.
            for extent in reversed(extents):
                self.message(extent)
        except AnabranchError:
            pass  # the reader will come to it, and report it

    def _remember(self, place: _Place) -> None:
        with self._lock:
            self._verified[place] = None
            while len(self._verified) > limits.VERIFIED_PLACES_MAX:
                self._verified.pop(next(iter(self._verified)))


def _verify(extent: Extent, data: pa.Buffer) -> None:
    if codec.checksum(data) != extent.checksum:
        raise CorruptBlob(name_of(extent), f"the checksum of the bytes from {extent.place.offset} on does not match")


def name_of(extent: Extent) -> str:
    """Where an extent's bytes lie, for errors."""
    return extent.key or f"(inline in log {extent.log} at {extent.start})"
