"""Staging: writing events before it is known whether they will be published, as the tasks of a Spark job do.

Staged events are durable but invisible until they are published (`anabranch.streams.publish`). They are sorted by key
point, stably, so if segments split or merge before the publication, only the slicing changes. The staging process holds
a lease from before the first write until the publication.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.core.checksum import checksum
from anabranch.core.codec import decode, encode, event_bounds
from anabranch.core.event_sizes import oversized, size_runs
from anabranch.core.python_rows import to_stored_table
from anabranch.core.routing import Points, spread_points
from anabranch.log.prewrite import Earliest, prewrite
from anabranch.model.append import BlobEntry, BlobLocation, TimeBounds
from anabranch.model.keyspace import KeyRange
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ports import Runtime
from anabranch.writing.routes import points_of


@dataclass(frozen=True, slots=True)
class StagedRun:
    """Consecutive rows of a staged batch whose key points are in `range`."""

    range: KeyRange
    row: int
    count: int
    bounds: TimeBounds
    size: int


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """One staged batch: small values that are sent from tasks to the publisher. Its message is in `blob`, or, if it
    is small, in `data`, which is never encrypted: it is sent as it is, and sealed when it is stored. `runs` slice it
    for the segments its writer knew; `spread` and `schema_version` are needed to slice it again."""

    blob: BlobEntry | None
    data: bytes | None
    place: BlobLocation
    checksum: int
    count: int
    runs: tuple[StagedRun, ...]
    spread: int
    schema_version: int

    @property
    def ranges(self) -> frozenset[KeyRange]:
        """The key ranges of its runs."""
        return frozenset(run.range for run in self.runs)


class _StagedTable:
    """A table that is staged, or to be staged."""

    __slots__ = ("staged", "table")

    def __init__(self, table: pa.Table) -> None:
        self.table: pa.Table | None = table
        self.staged: StagedBatch | None = None


class _StagerContents(NamedTuple):
    """The contents of a stager, in order: entries, and tables that are in no entry yet, each with whether it is a large
    event, which stays alone. `number` is that of the last numbered batch. Replaced by one assignment, since an
    exception from outside may strike between any two."""

    entries: list[_StagedTable]
    tables: list[tuple[pa.Table, bool]]
    number: int


class Stager:
    """Stages batches for one stream; for one thread. `ranges` are those of the stream's current segments, in order.
    `earliest`: when a blob may begin; see `anabranch.log.prewrite`."""

    def __init__(
        self,
        blobs: Blobs,
        runtime: Runtime,
        schema: StreamSchema,
        schema_version: int,
        ranges: tuple[KeyRange, ...],
        *,
        earliest: Earliest,
        inline_bytes_max: int = limits.STAGED_INLINE_BYTES_MAX,
    ) -> None:
        self._blobs = blobs
        self._earliest = earliest
        self._runtime = runtime
        self._schema = schema
        self._times = runtime.settings.times
        self._schema_version = schema_version
        self._ranges = ranges
        self._inline_bytes_max = inline_bytes_max
        self._contents = _StagerContents([], [], -1)
        self._unstaged_bytes = 0

    @property
    def schema(self) -> StreamSchema:
        """The schema of the batches it stages."""
        return self._schema

    def write(self, data: Any, *, number: int | None = None) -> None:
        """Accept a batch: anything with `__arrow_c_stream__` whose columns are the stream's. Raises SchemaMismatch,
        TooLarge, StoreUnavailable where earlier batches can't be made durable now. A refused batch is not accepted. A
        batch repeated under the `number` of the last batch is accepted once."""
        if number is not None and number == self._contents.number:
            return
        table = to_stored_table(data, self._schema, self._times)
        if (large := oversized(table, self._runtime.settings.large_event_bytes_max)) is not None:
            raise large
        self.make_room(table.nbytes)
        sized = size_runs(table, self._runtime.settings.event_bytes_max)
        fresh = [(table.slice(run.start, run.stop - run.start), run.large) for run in sized]
        if number is None:
            self._contents.tables.extend(fresh)
        else:
            self._contents = _StagerContents(self._contents.entries, [*self._contents.tables, *fresh], number)
        self._unstaged_bytes += table.nbytes

    def make_room(self, size: int) -> None:
        """Make earlier batches durable if `size` more bytes would exceed the memory limit. Raises StoreUnavailable."""
        if self._unstaged_bytes + size > self._runtime.settings.staged_bytes_max:
            self._stage()

    def finish(self) -> tuple[StagedBatch, ...]:
        """Make the rest durable, and return all that was staged, in the order it was written. May be repeated if it
        fails."""
        self._stage()
        return tuple(entry.staged for entry in self._contents.entries if entry.staged is not None)

    def _stage(self) -> None:
        entries, tables, number = self._contents
        if tables:
            entries = [*entries, *(_StagedTable(table) for table, _ in _join_tables(tables))]
            self._contents = _StagerContents(entries, [], number)
        # What is not yet durable is kept: a blob that can't be written now may be written by a later call.
        for entry in entries:
            if entry.staged is None:
                assert entry.table is not None
                (batch,) = entry.table.to_batches()
                entry.staged = self._stage_batch(batch)
                entry.table = None
        self._unstaged_bytes = 0

    def _stage_batch(self, batch: pa.RecordBatch) -> StagedBatch:
        spread = self._runtime.ids.bits(63)
        points = points_of(batch, self._schema, spread).per_row()
        order = np.argsort(points, kind="stable")
        ordered = batch if batch.num_rows == 1 else batch.take(pa.array(order))  # a large event is not copied
        message = encode(ordered)
        found = slice_runs(ordered, points[order], self._ranges, self._schema)
        staged_in_row = message.size <= self._inline_bytes_max
        blob, place, digest = (
            (None, BlobLocation(0, message.size), checksum(message))
            if staged_in_row
            else put_message(self._blobs, self._runtime, message, not_before=self._earliest())
        )
        return StagedBatch(
            blob=blob,
            data=message.to_pybytes() if staged_in_row else None,
            place=place,
            checksum=digest,
            count=batch.num_rows,
            runs=found,
            spread=spread,
            schema_version=self._schema_version,
        )


def _join_tables(tables: list[tuple[pa.Table, bool]]) -> list[tuple[pa.Table, bool]]:
    """The same rows in tables of one batch each, large events alone."""
    found: list[tuple[pa.Table, bool]] = []
    for large, group in groupby(tables, key=lambda each: each[1]):
        some = [table for table, _ in group]
        for whole in some if large else [pa.concat_tables(some)]:
            found += [(pa.Table.from_batches([each]), large) for each in whole.combine_chunks().to_batches()]
    return found


def put_message(
    blobs: Blobs, runtime: Runtime, message: pa.Buffer, *, not_before: int
) -> tuple[BlobEntry, BlobLocation, int]:
    """Write a message as one durable blob, begun at `not_before` at the earliest (µs); returns it with the location and
    the checksum of the stored bytes."""
    ahead = prewrite(blobs, runtime, message, not_before=not_before)
    return ahead.blob, ahead.location, ahead.checksum


def slice_runs(
    ordered: pa.RecordBatch, points: Points, ranges: tuple[KeyRange, ...], schema: StreamSchema
) -> tuple[StagedRun, ...]:
    """The runs of a batch that is sorted by key point, one for each range that has rows."""
    lows = np.array([part.low for part in ranges], dtype=np.uint64)
    edges = [*np.searchsorted(points, lows, side="left").tolist(), ordered.num_rows]
    runs = []
    for part, row, stop in zip(ranges, edges[:-1], edges[1:], strict=True):
        if stop > row:
            rows = ordered.slice(row, stop - row)
            runs.append(StagedRun(part, row, stop - row, event_bounds(rows, schema), rows.nbytes))
    return tuple(runs)


def slice_again(
    message: pa.Buffer, staged: StagedBatch, schema: StreamSchema, ranges: tuple[KeyRange, ...]
) -> StagedBatch:
    """The same staged batch with runs for other ranges: the segments were scaled meanwhile."""
    batch = decode(message, schema.columns)
    points = points_of(batch, schema, staged.spread).per_row()
    # The rows without a key were sorted by their spread points among the others: in order, these points rise.
    if schema.key is None:
        points = np.sort(points)
    elif nulls := batch.column(schema.key).null_count:
        missing = np.asarray(batch.column(schema.key).is_null().to_numpy(zero_copy_only=False))
        points[missing] = np.sort(spread_points(nulls, staged.spread))
    runs = slice_runs(batch, points, ranges, schema)
    return StagedBatch(
        staged.blob,
        staged.data,
        staged.place,
        staged.checksum,
        staged.count,
        runs,
        staged.spread,
        staged.schema_version,
    )
