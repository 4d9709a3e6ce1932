"""Reads the rows of extents in any encoding, for upkeep that rewrites them."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from anabranch.blobs.encryption_contexts import decrypt_extent
from anabranch.blobs.file_checksum import file_checksum
from anabranch.blobs.port import Blobs
from anabranch.core import codec
from anabranch.core.checksum import checksum
from anabranch.core.compaction import PARQUET
from anabranch.errors import CorruptBlob, CorruptCatalog
from anabranch.log.parquet.reader import ParquetReader
from anabranch.model.columns import TIME_TYPE
from anabranch.model.stream import Extent
from anabranch.runtime.sealing import Sealer


class ExtentRows:
    """Reads rows of extents and verifies their checksums: a damaged byte must not get a new checksum."""

    def __init__(self, blobs: Blobs, sealer: Sealer | None) -> None:
        self._blobs = blobs
        self._sealer = sealer
        self._file: tuple[str, ParquetReader] | None = None
        self._verified: set[tuple[str, int]] = set()  # staged rows: many extents may be slices of one message
        self.bytes_in = 0

    def rows(
        self, extent: Extent, encoded_columns: pa.Schema, columns: pa.Schema
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The extent's rows, encoded with `encoded_columns`, as batches of `columns` with their append times."""
        count = extent.stop - extent.start
        if extent.encoding == PARQUET:
            reader = self._parquet(extent)
            self.bytes_in += reader.stored_bytes(extent.location.row, count)
            yield from reader.read(extent.location.row, count, columns, extent.appended.low)
            return
        key = extent.key or f"inlined in log {extent.log}"
        message_key = (key, extent.location.offset)
        message = self._message(extent)
        self.bytes_in += message.size
        if extent.data is not None or message_key not in self._verified:
            if checksum(message) != extent.checksum:
                raise CorruptBlob(key, f"the events at byte {extent.location.offset} do not match their checksum")
            self._verified.add(message_key)
        message = decrypt_extent(self._sealer, extent, message, key)
        batch = codec.decode(message, encoded_columns, key=key).slice(extent.location.row, count)
        if batch.num_rows != count:
            raise CorruptBlob(key, f"expected {count} events at byte {extent.location.offset}, found {batch.num_rows}")
        appended = pa.repeat(pa.scalar(extent.appended.low, TIME_TYPE), count)
        yield codec.widen(batch, columns), appended

    def _message(self, extent: Extent) -> pa.Buffer:
        if extent.data is not None:
            return pa.py_buffer(extent.data)
        if extent.key is None:
            raise CorruptCatalog(f"the extent at {extent.start} of log {extent.log} has no blob")
        return self._blobs.get(extent.key, extent.location.offset, extent.location.length)

    def _parquet(self, extent: Extent) -> ParquetReader:
        if extent.key is None:
            raise CorruptCatalog(f"the extent at {extent.start} of log {extent.log} has no blob")
        if self._file is None or self._file[0] != extent.key:
            data = self._blobs.get(extent.key)
            if file_checksum(extent.key, data) != extent.checksum:
                raise CorruptBlob(extent.key, "its checksum does not match its bytes")
            self._file = (extent.key, ParquetReader(extent.key, data, self._sealer))
        return self._file[1]
