"""A new log that is one Parquet file: what flattening a segment and rewriting a part of it leave behind.

Made under a lease, which protects log and file until a segment views the log."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Writing
from anabranch.core.compaction import PARQUET, merged_bounds
from anabranch.log.lease import HeldLease
from anabranch.log.parquet.builder import ParquetBuilder, WrittenFile
from anabranch.model.append import BlobLocation, LogState, TimeBounds
from anabranch.model.ids import Micros
from anabranch.model.stream import Extent, StreamInfo
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime


class LogFile:
    """The file of a new log of the stream, from position 0, with the columns that the stream has now."""

    def __init__(self, catalog: Catalog, runtime: Runtime, stream: StreamInfo, hold: HeldLease) -> None:
        """Makes the log. It is not collected while the lease is held, though no segment views it."""
        self._hold = hold
        self._version = stream.schema_version
        self.key = history_key(hold.begun_at, token(runtime.ids))
        with catalog.writing(stream.id) as txn:
            self.log = txn.new_log(stream.id, appended_at=hold.begun_at)
            txn.update_log(LogState(self.log, stream.id, sealed=True, appended_at=hold.begun_at))
        encryption = None if runtime.sealer is None else runtime.sealer.file_encryption(self.key)
        self._builder = ParquetBuilder(stream.schema.columns, encryption=encryption)
        self._builder.begin(stream.id, self.log, 0, self._version)
        self._appended: list[TimeBounds] = []
        self._events: list[TimeBounds] = []

    def write(self, batch: pa.RecordBatch, appended: pa.Array, events: TimeBounds) -> None:
        """Adds rows, at least one, with their append times in order and the bounds of their event times."""
        self._builder.write(batch, appended)
        self._appended.append(TimeBounds(Micros(appended[0].value), Micros(appended[-1].value)))
        self._events.append(events)

    def put(self, blobs: Blobs) -> WrittenFile:
        """Writes the file. Returns once it is durable."""
        self._builder.end()
        written = self._builder.finish()
        blobs.put(self.key, [written.data])
        return written

    def publish(self, txn: Writing, written: WrittenFile, size: int) -> None:
        """Adds the file, of so many logical bytes, to the log, and seals it again. Raises LeaseExpired."""
        self._hold.verify(txn)
        txn.update_log(replace(txn.logs([self.log])[self.log], sealed=False, appended_at=Micros(0)))
        extent = Extent(
            log=self.log,
            start=0,
            stop=written.rows,
            blob=txn.insert_blob(self.key, written.data.size, self._hold.begun_at, PARQUET),
            key=self.key,
            encoding=PARQUET,
            location=BlobLocation(0, 0, 0),
            schema=self._version,
            checksum=written.checksum,
            appended=merged_bounds(self._appended),
            events=merged_bounds(self._events),
            size_end=size,
        )
        txn.extend_log(self.log, [extent])
        txn.update_log(replace(txn.logs([self.log])[self.log], sealed=True))
