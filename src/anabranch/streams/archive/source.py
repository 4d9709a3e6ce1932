"""Reading a segment range of a stream to its end, whatever happens to the stream meanwhile but its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from anabranch.blobs.port import Blobs
from anabranch.catalog.port import Catalog
from anabranch.core.cuts import truncated
from anabranch.core.digest import BlockSums, SegmentPart, StreamDigest, appended_array, segment_digest
from anabranch.core.stretch import Stretch
from anabranch.log.lease import Hold
from anabranch.log.plan import Plan
from anabranch.log.read import LogReader, Selection
from anabranch.log.view import load, refresh
from anabranch.log.watch import Watch
from anabranch.model.ids import SegmentId, StreamId
from anabranch.runtime.ports import Runtime


class Run(NamedTuple):
    """Events of a segment from the offset `first` on, and their append times."""

    first: int
    batch: pa.RecordBatch
    appended: pa.Array

    @property
    def stop(self) -> int:
        """The offset behind the last."""
        return self.first + int(self.batch.num_rows)


class Source:
    """The events of a stream. A scale, a compaction or a flattening while they are read is met by planning again."""

    def __init__(self, catalog: Catalog, blobs: Blobs, runtime: Runtime, stream: StreamId) -> None:
        self._catalog = catalog
        self._logs = LogReader(catalog, blobs, runtime)
        with catalog.reading() as reading:
            self._view = load(reading, stream)

    def runs(self, segment: SegmentId, start: int, stop: int, columns: pa.Schema) -> Iterator[Run]:
        """The events `start <= offset < stop`, in order, as batches of `columns`. Raises StreamNotFound, Truncated where
        they went meanwhile; CorruptBlob, BlobMissing."""

        def pages(offset: int) -> Plan:
            with self._catalog.reading() as reading:
                self._view = view = refresh(reading, self._view)
                if segment not in view.segments or view.segments[segment].head > offset:
                    raise truncated(view)
                return self._logs.plan(reading, view, segment, offset, stop)

        for rows in self._logs.read(pages, start, stop, Selection(columns)):
            yield Run(rows.first, rows.batch, appended_array(rows.appended, rows.batch.num_rows))


def digest_of(
    catalog: Catalog, blobs: Blobs, runtime: Runtime, stretch: Stretch, hold: Hold, progress: Watch
) -> StreamDigest:
    """The digest of what lies in a stretch. Reads it all, in memory of one batch. `progress` hears of events."""
    info = stretch.view.info
    source = Source(catalog, blobs, runtime, info.id)
    parts: list[SegmentPart] = []
    done = 0
    for piece in stretch.pieces:
        segment = piece.segment
        if segment.head == piece.stop:
            continue
        sums = BlockSums(segment.head)
        for run in source.runs(segment.id, segment.head, piece.stop, info.schema.columns):
            sums.add(run.batch, run.appended)
            hold.renew()
            progress("summing", done + run.stop - segment.head, stretch.events)
        done += piece.stop - segment.head
        parts.append(segment_digest(segment.id, segment.range, segment.head, piece.stop, sums.blocks()))
    return StreamDigest.of(info.schema, parts)
