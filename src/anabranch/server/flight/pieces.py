"""Cuts batches to pieces of a size that may be ahead of a client."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from anabranch import limits


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of at most `rows_of_piece`; no copies."""
    rows = rows_of_piece(batch.num_rows, batch.nbytes)
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def rows_of_piece(rows: int, size: int) -> int:
    """How many of `rows` of `size` bytes make about half of `limits.CONNECTION_BYTES_MAX`; at least one."""
    pieces = max(1, -(-size // (limits.CONNECTION_BYTES_MAX // 2)))
    return max(1, -(-rows // pieces))
