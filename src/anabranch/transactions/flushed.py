"""The flushed contents of a transaction: staged batches, stored under its id until it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.transaction import FLUSH, Flush, FlushedBatch, FlushedRun, FlushKey, flushes_of
from anabranch.model.ids import StreamId
from anabranch.writing.staging import StagedBatch, StagedRun


def put_flush(txn: Writing, ident: str, number: int, staged: Mapping[StreamId, Sequence[StagedBatch]]) -> None:
    """Store one flush, the `number`th of the transaction. Its batches are in blobs: events must not be put into a state
    entry, which is not encrypted."""
    flush = Flush({stream: tuple(map(_flushed, batches)) for stream, batches in staged.items()})
    txn.put_state(FLUSH, FlushKey(ident, number), flush)


def flushed_batches(txn: Reading, ident: str) -> dict[StreamId, tuple[StagedBatch, ...]]:
    """All flushed batches, by stream, in the order of the flushes."""
    found: dict[StreamId, tuple[StagedBatch, ...]] = {}
    for _, flush in txn.states(FLUSH, prefix=flushes_of(ident)):
        for stream, batches in flush.batches.items():
            found[stream] = found.get(stream, ()) + tuple(map(_staged, batches))
    return found


def drop_flushes(txn: Writing, ident: str, flushes: int) -> None:
    """Remove the flushed batches; their blobs are collected unless they are in use."""
    for number in range(flushes):
        txn.drop_state(FLUSH, FlushKey(ident, number))


def _flushed(staged: StagedBatch) -> FlushedBatch:
    assert staged.blob is not None
    assert staged.data is None
    runs = tuple(FlushedRun(run.range, run.row, run.count, run.bounds, run.size) for run in staged.runs)
    place = (staged.blob, staged.place, staged.checksum, staged.count)
    return FlushedBatch(*place, runs, staged.spread, staged.schema_version)


def _staged(batch: FlushedBatch) -> StagedBatch:
    return StagedBatch(
        blob=batch.blob,
        data=None,
        place=batch.place,
        checksum=batch.checksum,
        count=batch.count,
        runs=tuple(StagedRun(run.range, run.row, run.count, run.bounds, run.size) for run in batch.runs),
        spread=batch.spread,
        schema_version=batch.schema_version,
    )
