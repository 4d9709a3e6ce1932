"""Tables as pending batches: the input of `Writer.write_batch`, checked, and cut to the size of commits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from anabranch import limits
from anabranch.core.event_sizes import SizeRun, oversized, size_runs
from anabranch.errors import TooLarge
from anabranch.model.schema import StreamSchema
from anabranch.runtime.settings import Settings
from anabranch.writing.acknowledgement import Acknowledgement
from anabranch.writing.pending_batch import PendingBatch
from anabranch.writing.router import Router
from anabranch.writing.routes import points_of


def check_sizes(table: pa.Table, settings: Settings) -> None:
    """Raise TooLarge for a table, or an event of it, that no writer accepts."""
    if table.nbytes > limits.BATCH_BYTES_MAX:
        raise TooLarge("a batch", table.nbytes, limits.BATCH_BYTES_MAX)
    if (large := oversized(table, settings.large_event_bytes_max)) is not None:
        raise large


def pending_batches(
    table: pa.Table,
    acknowledgement: Acknowledgement,
    router: Router,
    schema: StreamSchema,
    settings: Settings,
    *,
    atomic: bool,
    expected: int | None,
) -> list[PendingBatch]:
    """The table, which has the columns of `schema`, as pending batches of at most about one commit, large events alone.
    A table with `atomic` or `expected` stays whole. Key points are computed here, in the caller's thread."""
    if table.num_rows == 0:
        return []
    whole = atomic or expected is not None
    contiguous = table.combine_chunks().to_batches()
    if whole and len(contiguous) > 1:
        raise TooLarge("an atomic batch", table.nbytes, limits.BATCH_BYTES_MAX)
    batches, begin = [], 0
    for batch in contiguous:
        for start, stop, large in _cut(batch, settings, whole=whole):
            part = batch.slice(start, stop - start)
            rows = np.arange(begin, begin + part.num_rows)
            points = points_of(part, schema, router.reserve_spread(part.num_rows))
            origins = [(acknowledgement, rows)]
            batches.append(PendingBatch(part, origins, points, atomic=atomic, expected=expected, large=large))
            begin += part.num_rows
    return batches


def _cut(batch: pa.RecordBatch, settings: Settings, *, whole: bool) -> Iterator[SizeRun]:
    """Where to cut a batch. One that must stay whole is not cut, so its large events share its commit."""
    for run in size_runs(pa.Table.from_batches([batch]), settings.event_bytes_max):
        if whole:
            yield SizeRun(0, batch.num_rows, run.large and batch.num_rows == 1)
            return
        part = batch.slice(run.start, run.stop - run.start)
        parts = 1 if run.large else max(1, -(-part.nbytes // settings.commit_bytes_max))
        step = -(-part.num_rows // parts)
        for start in range(run.start, run.stop, step):
            yield SizeRun(start, min(start + step, run.stop), run.large)
