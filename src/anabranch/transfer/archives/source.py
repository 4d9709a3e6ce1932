"""Reading a segment range of a stream to its end, whatever happens to the stream meanwhile, except deletion and
truncation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.core.stream_slice import StreamSlice
from anabranch.log.lease import HeldLease
from anabranch.log.progress import ProgressCallback
from anabranch.log.read import LogReader, Selection
from anabranch.log.segment_reader import SegmentReader
from anabranch.log.view import load
from anabranch.model.ids import SegmentId, StreamId
from anabranch.runtime.ports import Runtime
from anabranch.transfer.archives.digest import BlockSums, SegmentPart, StreamDigest, appended_array, segment_digest


class SourceRun(NamedTuple):
    """Events of a segment from the offset `first` on, and their append times."""

    first: int
    batch: pa.RecordBatch
    appended: pa.Array

    @property
    def stop(self) -> int:
        """The offset after the last event."""
        return self.first + int(self.batch.num_rows)


class SourceReader:
    """The events of a stream. Plans again if the stream is scaled, compacted or flattened while it is read."""

    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime, stream: StreamId) -> None:
        self._logs = LogReader(catalog, blobs, runtime)
        with catalog.reading() as reading:
            self._view = load(reading, stream)

    def runs(self, segment: SegmentId, start: int, stop: int, columns: pa.Schema) -> Iterator[SourceRun]:
        """The events `start <= offset < stop`, in order, as batches of `columns`. Raises StreamNotFound or Truncated if
        they were removed meanwhile; CorruptBlob, BlobMissing."""
        source = SegmentReader(self._logs, self._view, segment)
        for rows in source.rows(start, stop, Selection(columns)):
            self._view = source.view
            yield SourceRun(rows.first, rows.batch, appended_array(rows.appended, rows.batch.num_rows))


def digest_of(
    catalog: Catalog,
    blobs: Blobs,
    runtime: Runtime,
    stream_slice: StreamSlice,
    hold: HeldLease,
    progress: ProgressCallback,
) -> StreamDigest:
    """The digest of a stream slice. Reads all of it; memory: one batch. `progress` is called with events."""
    info = stream_slice.view.info
    source = SourceReader(catalog, blobs, runtime, info.id)
    parts: list[SegmentPart] = []
    done = 0
    for piece in stream_slice.segments:
        segment = piece.segment
        if segment.head == piece.stop:
            continue
        sums = BlockSums(segment.head)
        for run in source.runs(segment.id, segment.head, piece.stop, info.schema.columns):
            sums.add(run.batch, run.appended)
            hold.renew()
            progress("summing", done + run.stop - segment.head, stream_slice.events)
        done += piece.stop - segment.head
        parts.append(segment_digest(segment.id, segment.range, segment.head, piece.stop, sums.blocks()))
    return StreamDigest.of(info.schema, parts)
