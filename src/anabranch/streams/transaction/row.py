"""A transaction's row in the catalog: the one place that says what became of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from anabranch.catalog.port import Checkpointed, Lease, Reading, Writing
from anabranch.errors import InvalidArgument, TransactionAborted, TransactionNotFound
from anabranch.model.ids import Micros, StreamId
from anabranch.model.transaction import TransactionInfo, TransactionState

KIND: Final = "transaction"  # of an open one: pieces by transaction id
_ENDED: Final = "ended transaction"  # of one that is over: the same
_END: Final = "transaction end"  # when one ended, and its id, as 16 hex digits and a dash: so the first ones are found


@dataclass(frozen=True, slots=True)
class Row:
    """What the catalog keeps of a transaction. `flushes` numbers what was flushed, so that whoever commits notices if
    another process flushed meanwhile; `committer` names the holder that committed. The lease, `lease_us` long, holds the
    collector's horizon while it is open."""

    info: TransactionInfo
    lease: Lease
    lease_us: int
    flushes: int
    committer: str | None = None

    def prolonged(self, now: Micros) -> Row:
        """The row with all of its lease's time before it again."""
        until = Micros(now + self.lease_us)
        return replace(self, info=replace(self.info, expires_at=until), lease=replace(self.lease, expires_at=until))

    def flushed(self, events: Mapping[StreamId, int]) -> Row:
        """The row behind one more flush, of so many events."""
        return replace(self, info=replace(self.info, events=added(self.info.events, events)), flushes=self.flushes + 1)

    def committed(self, events: Mapping[StreamId, int], committer: str) -> Row:
        """The row with all that it holds, and who saw to it."""
        return replace(self, info=replace(self.info, events=events), committer=committer)

    def ended(self, state: TransactionState, now: Micros, reason: str | None = None) -> Row:
        """The row of a transaction that is over."""
        return replace(self, info=replace(self.info, state=state, ended_at=now, reason=reason))


def added(one: Mapping[StreamId, int], other: Mapping[StreamId, int]) -> dict[StreamId, int]:
    """Counts by stream, summed."""
    return {stream: one.get(stream, 0) + other.get(stream, 0) for stream in (*one, *other)}


def find_row(txn: Reading, ident: str) -> Row | None:
    """The row of a transaction, None where there is none."""
    piece = txn.piece(KIND, ident) or txn.piece(_ENDED, ident)
    return None if piece is None else _parse(piece)


def need_row(txn: Reading, ident: str) -> Row:
    """The row of a transaction. Raises TransactionNotFound."""
    row = find_row(txn, ident)
    if row is None:
        raise TransactionNotFound(ident)
    return row


def need_open(txn: Reading, ident: str) -> Row:
    """The row of a transaction that can be written to. Raises TransactionNotFound, TransactionAborted, InvalidArgument
    for one that is committed."""
    row = need_row(txn, ident)
    if row.info.state is TransactionState.ABORTED:
        raise TransactionAborted(ident, row.info.reason)
    if row.info.state is TransactionState.COMMITTED:
        raise InvalidArgument(f"transaction '{ident}' is committed, so nothing can be added to it or taken back")
    return row


def open_rows(txn: Reading) -> list[Row]:
    """The open transactions, the oldest first."""
    return _in_order(txn.pieces(KIND))


def all_rows(txn: Reading) -> list[Row]:
    """All transactions, the oldest first."""
    return _in_order([*txn.pieces(KIND), *txn.pieces(_ENDED)])


def ended_by(txn: Reading, time: Micros, limit: int) -> list[str]:
    """Of the transactions that ended up to a time, which ended first: at most so many, each as its end is kept."""
    return [each.name for each in txn.pieces(_END, limit) if int(each.name[:16], 16) <= time]


def put_row(txn: Writing, row: Row) -> None:
    """Keep the row, and its lease while it is open. One that has ended is kept apart: those that are open are looked at
    again and again, and are few."""
    info = row.info
    txn.put_piece(
        Checkpointed(
            KIND if info.ended_at is None else _ENDED,
            info.id,
            {
                "state": info.state.value,
                "begun_at": info.begun_at,
                "expires_at": info.expires_at,
                "ended_at": info.ended_at,
                "events": {f"{stream:016x}": count for stream, count in info.events.items()},
                "reason": info.reason,
                "lease": [row.lease.id, row.lease.begun_at, row.lease_us],
                "flushes": row.flushes,
                "committer": row.committer,
            },
        )
    )
    if info.ended_at is None:
        txn.put_lease(row.lease)
    else:
        txn.put_piece(Checkpointed(_END, f"{info.ended_at:016x}-{info.id}", {}))
        txn.drop_piece(KIND, info.id)
        txn.drop_lease(row.lease.id)


def forget(txn: Writing, ends: Iterable[str]) -> None:
    """Forget transactions that have ended, by what `ended_by` told."""
    for end in ends:
        txn.drop_piece(_ENDED, end[17:])
        txn.drop_piece(_END, end)


def _in_order(pieces: Iterable[Checkpointed]) -> list[Row]:
    return sorted(map(_parse, pieces), key=lambda row: (row.info.begun_at, row.info.id))


def _parse(piece: Checkpointed) -> Row:
    value: Mapping[str, Any] = piece.value
    info = TransactionInfo(
        id=piece.name,
        state=TransactionState(value["state"]),
        begun_at=Micros(value["begun_at"]),
        expires_at=Micros(value["expires_at"]),
        ended_at=None if value["ended_at"] is None else Micros(value["ended_at"]),
        events={StreamId(int(stream, 16)): count for stream, count in value["events"].items()},
        reason=value["reason"],
    )
    lease, begun_at, lease_us = value["lease"]
    return Row(
        info,
        Lease(lease, KIND, piece.name, Micros(begun_at), info.expires_at),
        lease_us,
        value["flushes"],
        value["committer"],
    )
