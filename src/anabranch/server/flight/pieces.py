"""Cuts batches to pieces of a size that may be ahead of a client."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from anabranch import limits


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about half of `limits.CONNECTION_BYTES_MAX`, of at least one row; no copies."""
    count = -(-batch.nbytes // (limits.CONNECTION_BYTES_MAX // 2))
    rows = max(1, -(-batch.num_rows // max(1, count)))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)
