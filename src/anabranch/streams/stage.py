"""Staging: writing events before anybody knows whether they will count, as the tasks of a Spark job do.

Staged events are durable and visible to nobody until they are published (`anabranch.streams.publish`). They lie sorted
by key point, stably, so that segments which split or merge before the publication only slice them elsewhere. Whoever
stages holds a lease from before the first write until the publication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.blobs.keys import commit_key
from anabranch.blobs.layout import frame
from anabranch.blobs.port import Blobs
from anabranch.core.checksum import checksum
from anabranch.core.codec import decode, encode, event_bounds
from anabranch.core.routing import Points, spread_points
from anabranch.core.rows import conform
from anabranch.core.sizes import oversized
from anabranch.model.append import BlobEntry, Bounds, Place
from anabranch.model.ids import Micros
from anabranch.model.keyspace import KeyRange
from anabranch.model.schema import StreamSchema
from anabranch.runtime.ids import token
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
        self._tables: list[pa.Table] = []
        self._held_bytes = 0
        self._done: list[Staged] = []

    def write(self, data: Any) -> None:
        """Take a batch: anything with `__arrow_c_stream__` whose columns are the stream's. Raises SchemaMismatch,
        TooLarge."""
        table = conform(data, self._schema)
        if (large := oversized(table, self._runtime.settings.event_bytes_max)) is not None:
            raise large
        self._tables.append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes >= limits.STAGED_BYTES_MAX:
            self._stage()

    def finish(self) -> tuple[Staged, ...]:
        """Make the rest durable, and return all that was staged, in the order it was written."""
        self._stage()
        return tuple(self._done)

    def _stage(self) -> None:
        tables, self._tables, self._held_bytes = self._tables, [], 0
        if not tables:
            return
        for batch in pa.concat_tables(tables).combine_chunks().to_batches():
            self._done.append(self._stage_batch(batch))

    def _stage_batch(self, batch: pa.RecordBatch) -> Staged:
        spread = self._runtime.ids.bits(63)
        points = points_of(batch, self._schema, spread).per_row()
        order = np.argsort(points, kind="stable")
        ordered = batch.take(pa.array(order))
        message = encode(ordered)
        runs = slice_runs(ordered, points[order], self._ranges, self._schema)
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
            runs=runs,
            spread=spread,
            schema_version=self._schema_version,
        )


def put_message(blobs: Blobs, runtime: Runtime, message: pa.Buffer) -> tuple[BlobEntry, Place, int]:
    """Write a message as one durable blob; returns it with the place and the checksum of what is stored."""
    begun_at, name = runtime.clock.now(), token(runtime.ids)
    key = commit_key(begun_at, name)
    index = {"commit": name, "begun_at": begun_at, "staged": True}
    framed = frame(index, [{"checksum": checksum(message)}], [message], key=key, sealer=runtime.sealer)
    blobs.put(key, framed.chunks)
    place = Place(framed.offsets[0], framed.lengths[0])
    return BlobEntry(key, framed.size, Micros(begun_at)), place, framed.checksums[0]


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
