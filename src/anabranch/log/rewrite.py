"""Writes selected events of a segment, with their append times, as one new log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog, Writing
from anabranch.core.codec import event_bounds
from anabranch.core.replacement import Run
from anabranch.log.lease import HeldLease
from anabranch.log.log_file import LogFile
from anabranch.log.plan import PlannedExtent
from anabranch.log.read import LogReader
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.sizes import segment_bytes
from anabranch.log.upkeep.extent_rows import ExtentRows
from anabranch.log.view import with_current_spans
from anabranch.model.ids import LogId, SegmentId
from anabranch.model.schema import StreamSchema
from anabranch.model.stream import StreamView
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
        self._file = LogFile(catalog, runtime, view.info, hold)
        self.log = self._file.log
        columns = view.info.schema.columns
        sources = ExtentRows(blobs, runtime.sealer)
        timed = StreamSchema(columns, None, view.info.schema.time)
        for piece, chosen in _pieces(logs, view, segment, runs):
            first = 0
            for whole_batch, whole_times in sources.rows(
                piece.extent.part(piece.start, piece.stop), piece.columns, columns
            ):
                mask = pa.array(chosen[first : first + whole_batch.num_rows])
                first += whole_batch.num_rows
                batch, times = whole_batch.filter(mask), whole_times.filter(mask)
                if batch.num_rows:
                    self._file.write(batch, times, event_bounds(batch, timed))
            hold.renew()
        with catalog.reading() as reading:
            whole = segment_bytes(reading, with_current_spans(reading, view), segment, runs[0][0], runs[-1][1])
        self._written = self._file.put(blobs)
        self._size = max(1, whole * self._written.rows // (runs[-1][1] - runs[0][0]))

    def publish(self, txn: Writing) -> LogId:
        """Adds the file as an extent to its log, seals the log again, and returns it; no segment views it yet. Raises
        LeaseExpired."""
        self._file.publish(txn, self._written, self._size)
        return self.log


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
