"""Leaving out repeats: which events of a job's sources equal one that is preferred to them.

All that is compared is looked at once, in the order of preference, before anything is moved; each event has a rank in that
order. What is known to be a repeat is not fetched (`known.py`). The answer depends on the events alone, so a job that is
resumed finds it again, and so do tasks that look side by side (`sift.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.core import codec
from anabranch.core.row_digest import Words, row_digests
from anabranch.core.stitch import joined_schema
from anabranch.core.stretch import plan_stretch
from anabranch.errors import BlobMissing
from anabranch.log.fetch import name_of
from anabranch.log.slices import slices
from anabranch.log.view import load
from anabranch.log.watch import Watch
from anabranch.model.cut import StreamCut
from anabranch.model.ids import LogId, StreamId
from anabranch.runtime.tasks import Tasks
from anabranch.streams.find import need_info
from anabranch.streams.jobs.cargo import Cargo, Run
from anabranch.streams.jobs.control import Control
from anabranch.streams.jobs.known import Known, parts_of
from anabranch.streams.jobs.row import JobRow, Range
from anabranch.streams.jobs.seen import Seen
from anabranch.streams.jobs.site import Site

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Masks(Protocol):
    """Tells for each range which of its events stay."""

    def mask(self, range_: Range) -> Mask:
        """For each event of the range, whether it stays."""
        ...


class Looked(NamedTuple):
    """Ranges of one stream that are looked at, in their order. With `moved` they are those of a source, in the job's store
    of that number; else of what is there already, whose events stay."""

    cargo: Cargo
    ranges: Sequence[Range]
    moved: bool
    store: int = 0


class Sieve:
    """Finds repeats in one process. `look` is called for all that is compared, in the order of preference, then `settle`.
    Memory: that of `Seen` and `Known`, and one batch."""

    def __init__(self, seen: Seen, columns: pa.Schema) -> None:
        self._seen = seen
        self._columns = columns
        self._bases: dict[LogId, int] = {}  # the rank of a range's first event, by the log that it is written to
        self._known_at: dict[LogId, list[tuple[int, int]]] = {}
        self._known = Known()
        self._rank = self._first_moved = 0
        self.repeats = 0

    def look(self, looked: Looked, range_: Range) -> None:
        """Digest the events of the next range, those that are not known to be repeats. What is not moved comes first."""
        known = self._known.look(looked.cargo, range_)
        for first, words in digests(looked.cargo, range_, known, self._columns):
            self._seen.add(words, self._rank + first - range_.start)
        if looked.moved:
            self._bases[range_.log], self._known_at[range_.log] = self._rank, known
            self.repeats += sum(stop - start for start, stop in known)
        else:
            self._first_moved += range_.events
        self._rank += range_.events

    @property
    def looked(self) -> int:
        """How many events it knows of."""
        return self._rank

    def settle(self) -> None:
        """Find the repeats among what is moved."""
        self.repeats += self._seen.settle(self._first_moved)

    def mask(self, range_: Range) -> Mask:
        """For each event of the range, whether it stays."""
        base = self._bases[range_.log]
        stays = np.ones(range_.events, dtype=np.bool_)
        stays[self._seen.repeats(base, base + range_.events) - base] = False
        for start, stop in self._known_at[range_.log]:
            stays[start - range_.start : stop - range_.start] = False
        return stays

    def close(self) -> None:
        """Give up what it keeps on disk."""
        self._seen.close()


def preferred(row: JobRow) -> list[int]:
    """The numbers of a job's sources in the order in which they are read: those of `prefer`, then the others."""
    first = [int(each) for each in row.options.get("prefer", ())]
    return [*first, *(number for number in range(len(row.parts)) if number not in first)]


def there_already(row: JobRow, target: Site) -> list[Looked]:
    """What the sources' events are compared with beside each other: what the stream that they are appended to held when
    the job was made. Raises StreamNotFound, Truncated where it holds that no more."""
    against = row.options.get("against")
    if against is None:
        return []
    stream = StreamId(int(against["stream"], 16))
    with target.catalog.reading() as reading:
        start, end = StreamCut.parse(against["from"]), StreamCut.parse(against["to"])
        stretch = plan_stretch(load(reading, stream), start, end)
        found = slices(reading, stretch, bytes_max=limits.JOB_RANGE_BYTES, count_max=limits.JOB_RANGES_MAX)
    return [Looked(Cargo(target, stream, ()), [Range(*each, LogId(0)) for each in found], moved=False)]


def columns_compared(row: JobRow, target: Site) -> pa.Schema:
    """The columns by which a job knows repeats, of the types that they have in the end: values that are equal there are
    equal, whatever they were stored as. Raises StreamNotFound, SchemaMismatch."""
    streams = [part.stage for part in row.parts]
    if "against" in row.options:
        streams.insert(0, StreamId(int(row.options["against"]["stream"], 16)))
    with target.catalog.reading() as reading:
        columns = joined_schema([need_info(reading, stream) for stream in streams]).columns
    return pa.schema([columns.field(name) for name in row.options["deduplicate"]])


def sieve_of(columns: pa.Schema, compared: Sequence[Looked], control: Control, tasks: Tasks, progress: Watch) -> Sieve:
    """Look at these columns of all that is compared, given in the order of preference; `progress` hears of events. Raises
    as `Mover.move`."""
    total = sum(each.events for looked in compared for each in looked.ranges)
    sieve = Sieve(Seen(tasks), columns)
    try:
        for looked in compared:
            for range_ in looked.ranges:
                control.check()
                sieve.look(looked, range_)
                progress("compare", sieve.looked, total)
        sieve.settle()
    except BaseException:
        sieve.close()
        raise
    return sieve


def digests(
    cargo: Cargo, range_: Range, known: Sequence[tuple[int, int]], columns: pa.Schema
) -> Iterator[tuple[int, tuple[Words, Words]]]:
    """Digests of a range's events by their `columns`, in batches, each with its first offset. The offsets in `known`,
    half-open and in order, are not fetched. Raises as `Cargo.runs`, BlobMissing, CorruptBlob."""
    offset, missing = range_.start, None
    while offset < range_.stop:
        try:
            for run in cargo.runs(range_, offset):
                shift = run.piece.shift
                apart = [(start - shift, stop - shift) for start, stop in known]
                for start, stop, fresh in parts_of(apart, run.piece.start, run.piece.stop):
                    wanted = run._replace(piece=run.piece._replace(start=start, stop=stop))
                    for batch in _batches(cargo, wanted) if fresh else ():
                        yield offset, row_digests(codec.widen(batch, columns))
                        offset += batch.num_rows
                    offset = stop + shift
        except BlobMissing as exc:
            # The plan may be older than a compaction whose old blobs were collected since: plan again, once.
            if exc.key == missing:
                raise
            missing = exc.key


def sifted(runs: Iterator[Run], mask: Mask, reached: int) -> Iterator[Run]:
    """The runs of a range with what stays of them, at the positions that they get, from position `reached` on."""
    for run in runs:
        first = run.piece.start + run.piece.shift - run.range.start
        stays = mask[first : first + run.events]
        count = int(stays.sum())
        if count:
            keep = None if count == len(stays) else pa.array(stays)
            yield run._replace(at=reached, keep=keep, size=run.size * count // len(stays))
        reached += count


def offset_behind(range_: Range, mask: Mask, length: int) -> int:
    """The offset behind the `length`th event that stays; the range's end where no more of them follow."""
    stays = np.flatnonzero(mask)
    if length >= len(stays):
        return range_.stop
    return range_.start + (int(stays[length - 1]) + 1 if length else 0)


def _batches(cargo: Cargo, run: Run) -> Iterator[pa.RecordBatch]:
    piece, extent = run.piece, run.piece.extent
    row, count = extent.place.row + piece.start - extent.start, piece.stop - piece.start
    message = cargo.fetcher.message(extent)
    if message is None:
        for batch, _ in cargo.fetcher.parquet(extent, row, count, piece.columns):
            yield batch
        return
    yield codec.decode(message, piece.columns, key=name_of(extent)).slice(row, count)
