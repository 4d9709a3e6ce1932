"""Staging: writing events before anybody knows whether they will count, as the tasks of a Spark job do.

Staged events are durable and visible to nobody until they are published (`anabranch.streams.publish`). They lie sorted
by key point, stably, so that segments which split or merge before the publication only slice them elsewhere. Whoever
stages holds a lease from before the first write until the publication.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.blobs.port import Blobs
from anabranch.core.checksum import checksum
from anabranch.core.codec import decode, encode, event_bounds
from anabranch.core.routing import Points, spread_points
from anabranch.core.rows import conform
from anabranch.core.sizes import oversized, runs
from anabranch.log.ahead import put_ahead
from anabranch.model.append import BlobEntry, Bounds, Place
from anabranch.model.keyspace import KeyRange
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ports import Runtime
from anabranch.streams.routes import points_of


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of a staged batch whose key points lie in `range`."""

    range: KeyRange
    row: int
    count: int
    bounds: Bounds
    size: int


@dataclass(frozen=True, slots=True)
class Staged:
    """One staged batch: small values that travel from tasks to the publisher. Its message lies in `blob`, or, where
    it is small, in `data`, which is never encrypted: it travels, and is sealed when it is stored. `runs` slice it for the segments its writer knew of; `spread` and `schema_version` are what
    slicing it anew takes."""

    blob: BlobEntry | None
    data: bytes | None
    place: Place
    checksum: int
    count: int
    runs: tuple[Run, ...]
    spread: int
    schema_version: int

    @property
    def ranges(self) -> frozenset[KeyRange]:
        """The key ranges of its runs."""
        return frozenset(run.range for run in self.runs)


class Stager:
    """Stages batches for one stream; for one thread. `ranges` are those of the stream's current segments, in order."""

    def __init__(
        self,
        blobs: Blobs,
        runtime: Runtime,
        schema: StreamSchema,
        schema_version: int,
        ranges: tuple[KeyRange, ...],
        *,
        inline_bytes_max: int = limits.STAGED_INLINE_BYTES_MAX,
    ) -> None:
        self._blobs = blobs
        self._runtime = runtime
        self._schema = schema
        self._schema_version = schema_version
        self._ranges = ranges
        self._inline_bytes_max = inline_bytes_max
        self._tables: list[tuple[pa.Table, bool]] = []  # and whether it is a large event, which stays alone
        self._held_bytes = 0
        self._done: list[Staged] = []

    @property
    def schema(self) -> StreamSchema:
        """What it stages."""
        return self._schema

    def write(self, data: Any) -> None:
        """Take a batch: anything with `__arrow_c_stream__` whose columns are the stream's. Raises SchemaMismatch,
        TooLarge, StoreUnavailable where those before it can't be made durable now. A batch that is refused is not taken."""
        table = conform(data, self._schema)
        if (large := oversized(table, self._runtime.settings.large_event_bytes_max)) is not None:
            raise large
        if self._held_bytes + table.nbytes > limits.STAGED_BYTES_MAX:
            self._stage()
        for run in runs(table, self._runtime.settings.event_bytes_max):
            self._tables.append((table.slice(run.start, run.stop - run.start), run.large))
        self._held_bytes += table.nbytes

    def finish(self) -> tuple[Staged, ...]:
        """Make the rest durable, and return all that was staged, in the order it was written. Where that fails it may be
        asked for again."""
        self._stage()
        return tuple(self._done)

    def _stage(self) -> None:
        if not self._tables:
            return
        # What is not yet durable stays held: a blob that can't be written now may be later, when it is asked for again.
        self._tables = _joined(self._tables)
        while self._tables:
            (batch,) = self._tables[0][0].to_batches()
            self._done.append(self._stage_batch(batch))
            del self._tables[0]
        self._held_bytes = 0

    def _stage_batch(self, batch: pa.RecordBatch) -> Staged:
        spread = self._runtime.ids.bits(63)
        points = points_of(batch, self._schema, spread).per_row()
        order = np.argsort(points, kind="stable")
        ordered = batch if batch.num_rows == 1 else batch.take(pa.array(order))  # a large event is not copied
        message = encode(ordered)
        found = slice_runs(ordered, points[order], self._ranges, self._schema)
        staged_in_row = message.size <= self._inline_bytes_max
        blob, place, digest = (
            (None, Place(0, message.size), checksum(message))
            if staged_in_row
            else put_message(self._blobs, self._runtime, message)
        )
        return Staged(
            blob=blob,
            data=message.to_pybytes() if staged_in_row else None,
            place=place,
            checksum=digest,
            count=batch.num_rows,
            runs=found,
            spread=spread,
            schema_version=self._schema_version,
        )


def _joined(tables: list[tuple[pa.Table, bool]]) -> list[tuple[pa.Table, bool]]:
    """The same rows in tables of one batch each, large events alone."""
    found: list[tuple[pa.Table, bool]] = []
    for large, group in groupby(tables, key=lambda each: each[1]):
        some = [table for table, _ in group]
        for whole in some if large else [pa.concat_tables(some)]:
            found += [(pa.Table.from_batches([each]), large) for each in whole.combine_chunks().to_batches()]
    return found


def put_message(blobs: Blobs, runtime: Runtime, message: pa.Buffer) -> tuple[BlobEntry, Place, int]:
    """Write a message as one durable blob; returns it with the place and the checksum of what is stored."""
    ahead = put_ahead(blobs, runtime, message)
    return ahead.blob, ahead.place, ahead.checksum


def slice_runs(
    ordered: pa.RecordBatch, points: Points, ranges: tuple[KeyRange, ...], schema: StreamSchema
) -> tuple[Run, ...]:
    """The runs of a batch that is sorted by key point, one for each range that has rows."""
    lows = np.array([part.low for part in ranges], dtype=np.uint64)
    edges = [*np.searchsorted(points, lows, side="left").tolist(), ordered.num_rows]
    runs = []
    for part, row, stop in zip(ranges, edges[:-1], edges[1:], strict=True):
        if stop > row:
            rows = ordered.slice(row, stop - row)
            runs.append(Run(part, row, stop - row, event_bounds(rows, schema), rows.nbytes))
    return tuple(runs)


def slice_again(message: pa.Buffer, staged: Staged, schema: StreamSchema, ranges: tuple[KeyRange, ...]) -> Staged:
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
    return Staged(
        staged.blob,
        staged.data,
        staged.place,
        staged.checksum,
        staged.count,
        runs,
        staged.spread,
        staged.schema_version,
    )
