"""Writes selected events of a segment, with their append times, as one new log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.blobs.keys import history_key
from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Writing
from anabranch.core.codec import event_bounds
from anabranch.core.compaction import PARQUET, merged_bounds
from anabranch.core.replacement import Run
from anabranch.log.lease import HeldLease
from anabranch.log.parquet.files import ParquetBuilder
from anabranch.log.plan import PlannedExtent
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.sizes import segment_bytes
from anabranch.log.upkeep.extent_rows import ExtentRows
from anabranch.log.view import with_current_spans
from anabranch.model.append import BlobLocation, LogState, TimeBounds
from anabranch.model.ids import LogId, Micros, SegmentId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import Extent, StreamView
from anabranch.runtime.ids import token
from anabranch.runtime.ports import Runtime

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class RewrittenFile:
    """One durable file that holds some runs of a segment, not yet listed in the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        logs: LogReader,
        blobs: Blobs,
        runtime: Runtime,
        view: StreamView,
        segment: SegmentId,
        runs: Sequence[Run],
        hold: HeldLease,
    ) -> None:
        """Reads the events and writes the file. The lease protects the blobs of the events and the file. Raises
        CorruptStore, Truncated, StreamNotFound."""
        self._view = view
        self._hold = hold
        self.key = history_key(hold.begun_at, token(runtime.ids))
        stream, columns = view.info.id, view.info.schema.columns
        with catalog.writing(stream) as txn:
            # The log is not collected while the lease is held, though no segment views it.
            self.log = txn.new_log(stream, appended_at=hold.begun_at)
            txn.update_log(LogState(self.log, stream, sealed=True, appended_at=hold.begun_at))
        encryption = None if runtime.sealer is None else runtime.sealer.file_encryption(self.key)
        builder = ParquetBuilder(columns, encryption=encryption)
        builder.begin(stream, self.log, 0, view.info.schema_version)
        sources = ExtentRows(blobs, runtime.sealer)
        appended: list[TimeBounds] = []
        events: list[TimeBounds] = []
        timed = StreamSchema(columns, None, view.info.schema.time)
        for piece, chosen in _pieces(logs, view, segment, runs):
            first = 0
            for whole_batch, whole_times in sources.rows(_cut(piece), piece.columns, columns):
                mask = pa.array(chosen[first : first + whole_batch.num_rows])
                first += whole_batch.num_rows
                batch, times = whole_batch.filter(mask), whole_times.filter(mask)
                if batch.num_rows:
                    builder.write(batch, times)
                    appended.append(TimeBounds(Micros(times[0].value), Micros(times[-1].value)))
                    events.append(event_bounds(batch, timed))
            hold.renew()
        builder.end()
        self._written = builder.finish()
        self._appended, self._events = merged_bounds(appended), merged_bounds(events)
        with catalog.reading() as reading:
            whole = segment_bytes(reading, with_current_spans(reading, view), segment, runs[0][0], runs[-1][1])
        self._size = max(1, whole * self._written.rows // (runs[-1][1] - runs[0][0]))
        blobs.put(self.key, [self._written.data])

    def publish(self, txn: Writing) -> LogId:
        """Adds the file as an extent to its log, seals the log again, and returns it; no segment views it yet. Raises
        LeaseExpired."""
        self._hold.verify(txn)
        log = self.log
        txn.update_log(replace(txn.logs([log])[log], sealed=False, appended_at=Micros(0)))
        blob = txn.insert_blob(self.key, self._written.data.size, self._hold.begun_at, PARQUET)
        extent = Extent(
            log=log,
            start=0,
            stop=self._written.rows,
            blob=blob,
            key=self.key,
            encoding=PARQUET,
            location=BlobLocation(0, 0, 0),
            schema=self._view.info.schema_version,
            checksum=self._written.checksum,
            appended=self._appended,
            events=self._events,
            size_end=self._size,
        )
        txn.extend_log(log, [extent])
        txn.update_log(replace(txn.logs([log])[log], sealed=True))
        return log


def _pieces(
    logs: LogReader, view: StreamView, segment: SegmentId, runs: Sequence[Run]
) -> list[tuple[PlannedExtent, Mask]]:
    """The part of each extent from its first event in the runs to its last, in order, with which of these events lie
    in them. Each extent is decoded once, however many runs it has."""
    found: list[tuple[PlannedExtent, Mask]] = []
    number = 0
    for page in SegmentReader(logs, view, segment).pages(runs[0][0], runs[-1][1]):
        for piece in page.extents:
            first, last = piece.start + piece.shift, piece.stop + piece.shift
            here: list[Run] = []
            while number < len(runs) and runs[number][0] < last:
                low, high = max(runs[number][0], first), min(runs[number][1], last)
                if low < high:
                    here.append((low, high))
                if runs[number][1] > last:
                    break
                number += 1
            if here:
                begin, stop = here[0][0], here[-1][1]
                mask = np.zeros(stop - begin, dtype=np.bool_)
                for low, high in here:
                    mask[low - begin : high - begin] = True
                found.append((piece._replace(start=begin - piece.shift, stop=stop - piece.shift), mask))
    return found


def _cut(piece: PlannedExtent) -> Extent:
    extent = piece.extent
    place = replace(extent.location, row=extent.location.row + piece.start - extent.start)
    return replace(extent, start=piece.start, stop=piece.stop, location=place)
