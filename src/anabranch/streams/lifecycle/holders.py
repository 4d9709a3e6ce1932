"""The stored holders of ephemeral streams: which streams exist only while they are held, and by which processes.

Each ephemeral stream has one row, under its id; a stream without one is permanent. Holders are not catalog leases: they
hold the stream, whose spans keep its events, so they never hold the collector back, however long they stay.

A holder writes its expiry time by the catalog's clock, and renews it several times per lease; a sweeping process waits
`limits.CLOCKS_DIFFER_US` longer. So no process loses a stream that it holds, unless it is suspended for that long, or the
catalog's clock is set ahead.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.ephemeral import EPHEMERAL, Holder, Holders, until_lookup
from anabranch.model.ids import Micros, StreamId


def is_ephemeral(txn: Reading, stream: StreamId) -> bool:
    """True if the stream is deleted once it has no holders."""
    return txn.state(EPHEMERAL, stream) is not None


def ephemeral_among(txn: Reading, streams: Sequence[StreamId]) -> frozenset[StreamId]:
    """Those of the streams that are ephemeral."""
    return frozenset(txn.states_among(EPHEMERAL, streams))


def expired_streams(txn: Reading, now: Micros) -> list[StreamId]:
    """The ephemeral streams of which a holder is not alive any more."""
    below = until_lookup(Micros(max(now - limits.CLOCKS_DIFFER_US + 1, 0)))
    return [stream for stream, _ in txn.states_found(EPHEMERAL, until_lookup(Micros(0)), below=below)]


def holders_of(txn: Reading, stream: StreamId) -> tuple[Holder, ...] | None:
    """The holders of the stream; None for a permanent one."""
    found = txn.state(EPHEMERAL, stream)
    return None if found is None else found.holders


def put_holders(txn: Writing, stream: StreamId, holders: tuple[Holder, ...]) -> None:
    """Make the stream ephemeral, with these holders."""
    txn.put_state(EPHEMERAL, stream, Holders(holders))


def drop_holders(txn: Writing, stream: StreamId) -> None:
    """Remove the holders: the stream is gone, or permanent from now on."""
    txn.drop_state(EPHEMERAL, stream)
