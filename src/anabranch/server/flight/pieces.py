"""Cuts batches to pieces of a size that may be ahead of a client, and sends them while the client may have them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from anabranch import limits
from anabranch.model.ids import StreamId
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.rights import StreamRight


def sent_batches(
    broker: Broker, principal: Principal, stream: StreamId, batches: Iterable[pa.RecordBatch], over: Callable[[], bool]
) -> Iterator[pa.RecordBatch]:
    """The batches of a stream, each counted, and with the caller's right to read checked again. `over` is asked before each,
    and ends them. Raises PermissionDenied, Unauthenticated, RateLimited, StreamNotFound, and what the batches raise."""
    guard = broker.guard
    right = StreamRight(broker.store, guard, principal, stream, "read", verb="read")
    with guard.hold(principal, "connections"):
        for batch in batches:
            if over():
                return
            right.check()
            guard.admit(principal, calls=0, bytes_=batch.nbytes)
            yield batch


def pieces_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of at most `rows_of_piece`; no copies."""
    rows = rows_of_piece(batch.num_rows, batch.nbytes)
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)


def rows_of_piece(rows: int, size: int) -> int:
    """How many of `rows` of `size` bytes make about half of `limits.CONNECTION_BYTES_MAX`; at least one."""
    pieces = max(1, -(-size // (limits.CONNECTION_BYTES_MAX // 2)))
    return max(1, -(-rows // pieces))
