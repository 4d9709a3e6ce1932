"""Fetches the bytes of extents and verifies that they are the bytes that were written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from anabranch import limits
from anabranch.blobs.encryption_contexts import decrypt_extent
from anabranch.blobs.file_checksum import file_checksum
from anabranch.blobs.keys import is_attached
from anabranch.blobs.port import Blobs
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.errors import CorruptBlob, CorruptCatalog
from anabranch.log.parquet.reader import ParquetReader
from anabranch.log.read_ahead import ReadAhead
from anabranch.model.stream import Extent
from anabranch.runtime.ports import Runtime

_Place = tuple[str, int]  # a blob's key and an offset in it
_WHOLE = -1  # stands for the offset of a whole file


class _OpenParquetFile(NamedTuple):
    """An opened file and its size in bytes."""

    reader: ParquetReader
    size: int


class Fetcher:
    """Returns the bytes of extents. A message's checksum is verified when the process first reads it.

    A tier-2 file's checksum is verified when the file is first opened, and the checksums of its pages whenever the
    pages are read. Thread-safe."""

    def __init__(self, blobs: Blobs, runtime: Runtime) -> None:
        self._blobs = blobs
        self._verified: dict[_Place, None] = {}
        self._sound: dict[tuple[_Place, int, int], None] = {}  # messages whose values were checked: place, log, schema
        self._files: dict[str, _OpenParquetFile] = {}
        self._sealer = runtime.sealer
        self._opened: dict[_Place, pa.Buffer] = {}  # decrypted messages of blobs, the latest last
        self._opened_bytes = 0
        self._lock = runtime.tasks.lock()
        self._near = runtime.settings.verify_ahead
        self._helper = ReadAhead(runtime.tasks)

    def message(self, extent: Extent) -> pa.Buffer | None:
        """The verified message of an Arrow extent, or None for a Parquet one. Raises BlobMissing, CorruptBlob."""
        if extent.data is not None:
            message = pa.py_buffer(extent.data)
            _verify(extent, message)
            return decrypt_extent(self._sealer, extent, message, name_of(extent))
        if extent.encoding != "arrow":
            return None
        if extent.key is None:
            raise CorruptCatalog(
                f"log {extent.log} refers to blob {extent.blob}, which the catalog does not have",
                "blobs",
                str(extent.blob),
            )
        place = (extent.key, extent.location.offset)
        if place not in self._verified:
            self._helper.settle(place)
        message = self._blobs.get(extent.key, extent.location.offset, extent.location.length)
        if place not in self._verified:
            _verify(extent, message)
            self._remember(place)
        return message if self._sealer is None else self._decrypt(extent, message, place)

    def decode(self, extent: Extent, message: pa.Buffer, columns: pa.Schema) -> pa.RecordBatch:
        """The rows of an extent's `message`. Its values are checked when the process first decodes the message: the
        checksum is no proof of who wrote the bytes, because anyone can compute one. Raises CorruptBlob."""
        place = None if extent.key is None else ((extent.key, extent.location.offset), extent.log, extent.schema)
        known = place in self._sound
        batch = codec.decode(message, columns, key=name_of(extent), known=known)
        if place is not None and not known:
            with self._lock:
                self._sound[place] = None
                while len(self._sound) > limits.VERIFIED_PLACES_MAX:
                    self._sound.pop(next(iter(self._sound)))
        return batch

    def prepare(self, extent: Extent) -> None:
        """Verifies the message in the background, for a caller that will ask for it soon. Does so only for a large
        message, and only if blobs are local: remote blobs are not fetched before they are needed."""
        place = (extent.key, extent.location.offset)
        large = extent.encoding == "arrow" and extent.location.length >= limits.VERIFY_AHEAD_BYTES_MIN
        if self._near and large and extent.key is not None and place not in self._verified:
            self._helper.begin(place, partial(self._verify_ahead, extent, extent.key))

    def _verify_ahead(self, extent: Extent, key: str) -> None:
        # Errors are raised to the caller that asks for the message.
        with suppress(Exception):
            _verify(extent, self._blobs.get(key, extent.location.offset, extent.location.length))
            self._remember((key, extent.location.offset))

    def _decrypt(self, extent: Extent, box: pa.Buffer, place: _Place) -> pa.Buffer:
        # The extents of staged rows are slices of one message; without this cache each would decrypt the same box.
        known = self._opened.get(place)
        if known is not None:
            return known
        message = decrypt_extent(self._sealer, extent, box, name_of(extent))
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
        """The rows of a tier-2 file from `row` on, as batches of `columns` with their append times.

        Raises BlobMissing, CorruptBlob, FormatTooNew.
        """
        if extent.key is None:
            raise CorruptCatalog(
                f"log {extent.log} refers to blob {extent.blob}, which the catalog does not have",
                "blobs",
                str(extent.blob),
            )
        # An opened file serves one iteration at a time, so it is not in the cache while it is in use.
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
            raise CorruptBlob(exc.key, exc.reason, self._blobs.path(exc.key)) from exc
        finally:
            # Without the lock: an abandoned iteration ends when its memory is reclaimed, perhaps under that lock.
            if file is not None:
                self._files[extent.key] = file

    def _open(self, key: str, expected: int) -> _OpenParquetFile:
        """Opens a file. Raises CorruptBlob if its checksum is not the expected one."""
        data = self._blobs.get(key)
        # The pages have their own checksums, but the metadata that locates and describes them has no checksum.
        if (key, _WHOLE) not in self._verified:
            if file_checksum(key, data) != expected:
                raise CorruptBlob(key, "its checksum does not match its bytes")
            self._remember((key, _WHOLE))
        return _OpenParquetFile(ParquetReader(key, data, self._sealer), data.size)

    def _make_room(self) -> None:
        """Removes the least recently used files from the cache. Needs the lock."""
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
        raise CorruptBlob(name_of(extent), f"the checksum of the bytes from {extent.location.offset} on does not match")


def name_of(extent: Extent) -> str:
    """Where an extent's bytes lie, for error messages."""
    return extent.key or f"(inline in log {extent.log} at {extent.start})"
