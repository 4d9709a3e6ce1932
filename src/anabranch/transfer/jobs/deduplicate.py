"""Deduplication: finding the events of a job's sources that equal an event of higher preference.

Everything that is compared is read once, in the order of preference, before anything is moved; each event has a rank in
that order. Events already known to be repeats are not fetched (`known_repeats.py`). The result depends on the events
alone, so a resumed job finds the same repeats, and so do parallel tasks (`deduplicate_remote.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.core import codec
from anabranch.core.closeable import closed_on_error
from anabranch.core.stitch import joined_schema
from anabranch.core.stream_slice import plan_slice
from anabranch.errors import BlobMissing
from anabranch.log.plan import MissingBlob
from anabranch.log.progress import ProgressCallback
from anabranch.log.slices import split_slice
from anabranch.log.view import load
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, StreamId
from anabranch.runtime.tasks import Tasks
from anabranch.streams.directory.find import need_info
from anabranch.transfer.jobs.control import RunControl
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.known_repeats import KnownRepeats, parts_of
from anabranch.transfer.jobs.range_reader import RangeReader, RangeRun
from anabranch.transfer.jobs.record import JobRange, JobRow
from anabranch.transfer.jobs.repeat_sort import RepeatSort
from anabranch.transfer.jobs.row_digest import Words, row_digests

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class KeepMasks(Protocol):
    """Says for each range which of its events are kept."""

    def mask(self, range_: JobRange) -> Mask:
        """For each event of the range, whether it is kept."""
        ...


class ComparedRanges(NamedTuple):
    """Ranges of one stream to compare, in order. With `moved` they are ranges of a source in the job's store number
    `store`; otherwise of the existing target stream, whose events are all kept."""

    range_reader: RangeReader
    ranges: Sequence[JobRange]
    moved: bool
    store: int = 0


class Deduplicator:
    """Finds repeats in one process. Call `look` for all compared ranges in the order of preference, then `settle`.
    Memory: that of `RepeatSort` and `KnownRepeats`, and one batch."""

    def __init__(self, seen: RepeatSort, columns: pa.Schema) -> None:
        self._seen = seen
        self._columns = columns
        self._bases: dict[LogId, int] = {}  # the rank of a range's first event, by the log that the range is written to
        self._known_at: dict[LogId, list[tuple[int, int]]] = {}
        self._known = KnownRepeats()
        self._rank = self._first_moved = 0
        self.repeats = 0

    def compare(self, looked: ComparedRanges, range_: JobRange) -> None:
        """Digest the events of the next range, except known repeats. Ranges that are not moved come first."""
        known = self._known.edges_of(looked.range_reader, range_)
        for first, words in digests(looked.range_reader, range_, known, self._columns):
            self._seen.add(words, self._rank + first - range_.start)
        if looked.moved:
            self._bases[range_.log], self._known_at[range_.log] = self._rank, known
            self.repeats += sum(stop - start for start, stop in known)
        else:
            self._first_moved += range_.events
        self._rank += range_.events

    @property
    def looked(self) -> int:
        """The number of events read so far, known repeats included."""
        return self._rank

    def settle(self) -> None:
        """Find the repeats among the events that are moved."""
        self.repeats += self._seen.settle(self._first_moved)

    def mask(self, range_: JobRange) -> Mask:
        """For each event of the range, whether it is kept."""
        base = self._bases[range_.log]
        stays = np.ones(range_.events, dtype=np.bool_)
        stays[self._seen.repeats(base, base + range_.events) - base] = False
        for start, stop in self._known_at[range_.log]:
            stays[start - range_.start : stop - range_.start] = False
        return stays

    def close(self) -> None:
        """Release its file on disk."""
        self._seen.close()


def preferred(row: JobRow) -> list[int]:
    """The numbers of a job's sources in the order in which they are read: those of `prefer`, then the others."""
    first = [int(each) for each in row.options.get("prefer", ())]
    return [*first, *(number for number in range(len(row.parts)) if number not in first)]


def existing_ranges(row: JobRow, target: JobStore) -> list[ComparedRanges]:
    """The ranges of the target stream that the sources' events are compared with: its contents when the job was
    created. Empty for a job that appends to no stream. Raises StreamNotFound, and Truncated if the stream no longer
    holds all of it."""
    against = row.options.get("against")
    if against is None:
        return []
    stream = StreamId(int(against["stream"], 16))
    with target.catalog.reading() as reading:
        start, end = StreamCut.parse(against["from"]), StreamCut.parse(against["to"])
        stream_slice = plan_slice(load(reading, stream), start, end)
        found = split_slice(reading, stream_slice, bytes_max=limits.JOB_RANGE_BYTES, count_max=limits.JOB_RANGES_MAX)
    return [ComparedRanges(RangeReader(target, stream, ()), [JobRange(*each, LogId(0)) for each in found], moved=False)]


def columns_compared(row: JobRow, target: JobStore) -> pa.Schema:
    """The columns by which a job recognizes repeats, with their final types: values equal in those types are equal,
    however they were stored. Raises StreamNotFound, SchemaMismatch."""
    streams = [part.stage for part in row.parts]
    if "against" in row.options:
        streams.insert(0, StreamId(int(row.options["against"]["stream"], 16)))
    with target.catalog.reading() as reading:
        columns = joined_schema([need_info(reading, stream) for stream in streams]).columns
    return pa.schema([columns.field(name) for name in row.options["deduplicate"]])


def build_deduplicator(
    columns: pa.Schema,
    compared: Sequence[ComparedRanges],
    control: RunControl,
    tasks: Tasks,
    progress: ProgressCallback,
) -> Deduplicator:
    """Build the `Deduplicator` over these columns of everything compared, given in the order of preference. `progress`
    is called with events. Raises as `RangeMover.move`."""
    total = sum(each.events for looked in compared for each in looked.ranges)
    keep_masks = Deduplicator(RepeatSort(tasks), columns)
    with closed_on_error(keep_masks):
        for looked in compared:
            for range_ in looked.ranges:
                control.check()
                keep_masks.compare(looked, range_)
                progress("compare", keep_masks.looked, total)
        keep_masks.settle()
    return keep_masks


def digests(
    range_reader: RangeReader, range_: JobRange, known: Sequence[tuple[int, int]], columns: pa.Schema
) -> Iterator[tuple[int, tuple[Words, Words]]]:
    """Digests of a range's events over `columns`, in batches, each with its first offset. The offsets in `known`,
    half-open and in order, are not fetched. Raises as `RangeReader.runs`, BlobMissing, CorruptBlob."""
    offset, missing = range_.start, MissingBlob()
    while offset < range_.stop:
        try:
            for run in range_reader.runs(range_, offset):
                shift = run.piece.shift
                apart = [(start - shift, stop - shift) for start, stop in known]
                for start, stop, fresh in parts_of(apart, run.piece.start, run.piece.stop):
                    wanted = run._replace(piece=run.piece._replace(start=start, stop=stop))
                    for batch in _batches(range_reader, wanted) if fresh else ():
                        yield offset, row_digests(codec.widen(batch, columns))
                        offset += batch.num_rows
                    offset = stop + shift
        except BlobMissing as exc:
            missing.plan_again(exc)


def kept_runs(runs: Iterator[RangeRun], mask: Mask, reached: int) -> Iterator[RangeRun]:
    """The runs of a range with the events that are kept, at their final positions, from position `reached` on."""
    for run in runs:
        first = run.piece.start + run.piece.shift - run.range.start
        stays = mask[first : first + run.events]
        count = int(stays.sum())
        if count:
            keep = None if count == len(stays) else pa.array(stays)
            yield run._replace(at=reached, keep=keep, size=run.size * count // len(stays))
        reached += count


def offset_behind(range_: JobRange, mask: Mask, length: int) -> int:
    """The offset after the `length`th kept event; the range's end if no kept events follow."""
    stays = np.flatnonzero(mask)
    if length >= len(stays):
        return range_.stop
    return range_.start + (int(stays[length - 1]) + 1 if length else 0)


def _batches(range_reader: RangeReader, run: RangeRun) -> Iterator[pa.RecordBatch]:
    piece, extent = run.piece, run.piece.extent
    row, count = piece.row, piece.stop - piece.start
    message = range_reader.fetcher.message(extent)
    if message is None:
        for batch, _ in range_reader.fetcher.parquet(extent, row, count, piece.columns):
            yield batch
        return
    yield range_reader.fetcher.decode(extent, message, piece.columns).slice(row, count)
