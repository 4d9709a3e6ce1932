"""Ephemeral streams: which ones live only while somebody holds them, and who does.

Each has one named piece of the catalog, by its id; a stream without one is lasting. Holders are no catalog leases: what
they hold is the stream, whose spans keep its events, so they never hold the collector back, however long they stay.

Clocks of processes differ. A holder writes until when it holds by its own clock, and prolongs that three times as often
as needed; who sweeps waits `limits.CLOCKS_DIFFER_US` longer by its own. So nobody loses a stream that it holds while
clocks differ by less; a larger difference, or a holder that stood still for so long, counts as its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from anabranch import limits
from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.model.ids import Micros, StreamId

EPHEMERAL: Final = "ephemeral"  # the kind of pieces that say who holds a stream, by the stream's id


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds an ephemeral stream. `process` is for people: host and process id. It holds from `since` until `until`,
    by its own clock, if it does not prolong that."""

    token: str
    process: str
    since: Micros
    until: Micros

    def alive(self, now: Micros) -> bool:
        """True as long as it may still be at work, by a clock that may differ from its own."""
        return now < self.until + limits.CLOCKS_DIFFER_US


def is_ephemeral(txn: Reading, stream: StreamId) -> bool:
    """True if the stream goes when nobody holds it any more."""
    return txn.piece(EPHEMERAL, f"{stream:016x}") is not None


def ephemeral_streams(txn: Reading) -> Mapping[StreamId, tuple[Holder, ...]]:
    """All of them, each with its holders."""
    return {StreamId(int(piece.name, 16)): _holders(piece) for piece in txn.pieces(EPHEMERAL)}


def holders_of(txn: Reading, stream: StreamId) -> tuple[Holder, ...] | None:
    """Who holds the stream; None for a lasting one."""
    piece = txn.piece(EPHEMERAL, f"{stream:016x}")
    return None if piece is None else _holders(piece)


def put_holders(txn: Writing, stream: StreamId, holders: tuple[Holder, ...]) -> None:
    """Let the stream be ephemeral, held by these."""
    told = [asdict(holder) for holder in holders]
    txn.put_piece(Checkpointed(EPHEMERAL, f"{stream:016x}", {"holders": told}))


def drop_holders(txn: Writing, stream: StreamId) -> None:
    """The stream is gone, or lasting from now on."""
    txn.drop_piece(EPHEMERAL, f"{stream:016x}")


def _holders(piece: Checkpointed) -> tuple[Holder, ...]:
    told: Any = piece.value["holders"]
    return tuple(Holder(**each) for each in told)
