"""Rows as bytes, in which they go through Spark's stateful operator: a column of Arrow IPC streams.

The operator's own interface is of pandas, which turns integers with nulls into floats, and it costs a conversion of every
column. As bytes, rows keep their types, and a group is few values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

__all__ = [
    "BLOB",
    "BUCKET",
    "BUCKETS",
    "NOW",
    "blobs_of",
    "pack",
    "packed_by_bucket",
    "packed_for_all_buckets",
    "unpack",
    "unpacked",
]

# Spark hands rows over as named tuples, whose fields can not begin with _.
BUCKET: Final = "anabranch_bucket"
BLOB: Final = "anabranch_rows"
NOW: Final = "anabranch_now"
"""The time of the micro-batch in µs, which is the same when it is repeated."""

# State is kept by bucket. Spark distributes these numbers evenly over 1, 2, 4, 8 or 16 partitions. They are part of
# checkpoints, so they never change.
BUCKETS: Final = (12, 16, 5, 1, 37, 20, 2, 35, 13, 6, 49, 7, 25, 15, 4, 0)

_PACKED: Final = pa.schema([(BUCKET, pa.int32()), (BLOB, pa.binary())])
_ROWS_OF_A_BLOB_MAX: Final = 65_536


def pack(rows: pa.Table | pa.RecordBatch, *, compressed: bool = False) -> bytes:
    """The rows with their schema."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write(rows)
    return bytes(sink.getvalue())


def unpack(blob: bytes) -> pa.Table:
    """The inverse of `pack`."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return reader.read_all()


def blobs_of(rows: pa.Table) -> list[bytes]:
    """The rows as blobs of a limited size."""
    return [pack(rows.slice(first, _ROWS_OF_A_BLOB_MAX)) for first in range(0, rows.num_rows, _ROWS_OF_A_BLOB_MAX)]


def packed_by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with their bucket, as one blob for each bucket of a batch, without the column of the bucket."""
    for batch in batches:
        if not batch.num_rows:
            continue
        buckets = batch.column(BUCKET).to_numpy()
        order = np.argsort(buckets, kind="stable")
        rows = batch.drop_columns([BUCKET]).take(pa.array(order))
        found, firsts = np.unique(buckets[order], return_index=True)
        ends = [*firsts[1:], len(order)]
        yield _packed(found, [pack(rows.slice(first, end - first)) for first, end in zip(firsts, ends, strict=True)])


def packed_for_all_buckets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """As `packed_by_bucket`, and an empty blob for each bucket, so that each is asked whether something is due."""
    yield from packed_by_bucket(batches)
    yield _packed(np.array(BUCKETS), [b""] * len(BUCKETS))


def _packed(buckets: np.ndarray[Any, Any], blobs: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(buckets, pa.int32()), pa.array(blobs, pa.binary())], schema=_PACKED)


def unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of blobs."""
    for batch in batches:
        for blob in batch.column(BLOB):
            yield from unpack(blob.as_py()).to_batches()
