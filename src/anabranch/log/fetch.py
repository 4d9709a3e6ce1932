"""Fetching the bytes of extents, and making sure that they are those that were written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.keys import is_attached
from anabranch.blobs.port import Blobs
from anabranch.blobs.sealed import unsealed
from anabranch.blobs.summed import file_checksum
from anabranch.core.checksum import checksum
from anabranch.errors import CorruptBlob
from anabranch.log.helper import Helper
from anabranch.log.parquet import ParquetReader
from anabranch.model.stream import Extent
from anabranch.runtime.ports import Runtime

_Place = tuple[str, int]  # a blob's key and an offset in it
_WHOLE = -1  # stands for the offset of a whole file


class _File(NamedTuple):
    """An opened file, and its bytes."""

    reader: ParquetReader
    size: int


class Fetcher:
    """Gives out the bytes of extents. A message's checksum is verified when the process first reads it.

    So is a tier-2 file's when it is first opened, and its pages' whenever they are read. Thread-safe.
    """

    def __init__(self, blobs: Blobs, runtime: Runtime) -> None:
        self._blobs = blobs
        self._verified: dict[_Place, None] = {}
        self._files: dict[str, _File] = {}
        self._sealer = runtime.sealer
        self._opened: dict[_Place, pa.Buffer] = {}  # messages of blobs, the latest last
        self._opened_bytes = 0
        self._lock = runtime.tasks.lock()
        self._near = runtime.settings.verify_ahead
        self._helper = Helper(runtime.tasks)

    def message(self, extent: Extent) -> pa.Buffer | None:
        """The verified message of an Arrow extent, or None for a Parquet one. Raises BlobMissing, CorruptBlob."""
        if extent.data is not None:
            message = pa.py_buffer(extent.data)
            _verify(extent, message)
            return unsealed(self._sealer, extent, message, name_of(extent))
        if extent.encoding != "arrow":
            return None
        assert extent.key is not None
        place = (extent.key, extent.place.offset)
        if place not in self._verified:
            self._helper.settle(place)
        message = self._blobs.get(extent.key, extent.place.offset, extent.place.length)
        if place not in self._verified:
            _verify(extent, message)
            self._remember(place)
        return message if self._sealer is None else self._unsealed(extent, message, place)

    def prepare(self, extent: Extent) -> None:
        """Have the message verified beside the caller, who will ask for it soon. Only for a large one, and where blobs
        are near: what is far away is not fetched before it is asked for."""
        place = (extent.key, extent.place.offset)
        large = extent.encoding == "arrow" and extent.place.length >= limits.AHEAD_BYTES_MIN
        if self._near and large and extent.key is not None and place not in self._verified:
            self._helper.begin(place, partial(self._verify_ahead, extent, extent.key))

    def _verify_ahead(self, extent: Extent, key: str) -> None:
        # What is wrong with it is told to whoever asks for it.
        with suppress(Exception):
            _verify(extent, self._blobs.get(key, extent.place.offset, extent.place.length))
            self._remember((key, extent.place.offset))

    def _unsealed(self, extent: Extent, box: pa.Buffer, place: _Place) -> pa.Buffer:
        # The extents of staged rows are slices of one message, and would each open the same box.
        known = self._opened.get(place)
        if known is not None:
            return known
        message = unsealed(self._sealer, extent, box, name_of(extent))
        with self._lock:
            if place not in self._opened:
                self._opened[place] = message
                self._opened_bytes += message.size
            while self._opened_bytes > limits.UNSEALED_BYTES_MAX:
                self._opened_bytes -= self._opened.pop(next(iter(self._opened))).size
        return message

    def parquet(
        self, extent: Extent, row: int, count: int, columns: pa.Schema
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Rows of a tier-2 file from `row` on, as batches of `columns` with their append times. Raises BlobMissing,
        CorruptBlob, FormatTooNew."""
        assert extent.key is not None
        # An opened file is for one iteration at a time, so it is out of the cache while it is in use.
        with self._lock:
            self._make_room()
            file = self._files.pop(extent.key, None)
        try:
            if file is None:
                file = self._open(extent.key, extent.checksum)
            yield from file.reader.read(row, count, columns, extent.appended.low)
        except CorruptBlob as exc:
            if not is_attached(exc.key):
                raise
            raise CorruptBlob(exc.key, exc.why, self._blobs.path(exc.key)) from exc
        finally:
            # Without the lock: an iteration that was forgotten ends wherever its memory is reclaimed, perhaps under it.
            if file is not None:
                self._files[extent.key] = file

    def _open(self, key: str, expected: int) -> _File:
        """A file whose checksum is the expected one."""
        data = self._blobs.get(key)
        # The pages have checksums of their own, but what tells where they lie and what they mean has none.
        if (key, _WHOLE) not in self._verified:
            if file_checksum(key, data) != expected:
                raise CorruptBlob(key, "its checksum does not match its bytes")
            self._remember((key, _WHOLE))
        return _File(ParquetReader(key, data, self._sealer), data.size)

    def _make_room(self) -> None:
        """Let go of the files that were used longest ago. Needs the lock."""
        kept = list(self._files.items())
        size = sum(file.size for _, file in kept)
        for count, (key, file) in zip(range(len(kept), 0, -1), kept, strict=True):
            if count <= limits.OPEN_PARQUET_MAX and size <= limits.OPEN_PARQUET_BYTES_MAX:
                return
            self._files.pop(key, None)
            size -= file.size

    def _remember(self, place: _Place) -> None:
        with self._lock:
            self._verified[place] = None
            while len(self._verified) > limits.VERIFIED_PLACES_MAX:
                self._verified.pop(next(iter(self._verified)))


def _verify(extent: Extent, data: pa.Buffer) -> None:
    if checksum(data) != extent.checksum:
        raise CorruptBlob(name_of(extent), f"the checksum of the bytes from {extent.place.offset} on does not match")


def name_of(extent: Extent) -> str:
    """Where an extent's bytes lie, for errors."""
    return extent.key or f"(inline in log {extent.log} at {extent.start})"
