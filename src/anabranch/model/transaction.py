"""Transactions as the catalog describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from anabranch.model.ids import Micros, StreamId


class TransactionState(Enum):
    """What became of a transaction. It leaves `OPEN` once, and for ever."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction as of its last ping, flush or end.

    `events` counts, by stream, what it holds durably: while it is open what was flushed, once it is committed all that
    it wrote. An open one whose `expires_at` has passed is aborted by whoever comes by. `reason` says why one was aborted.
    """

    id: str
    state: TransactionState
    begun_at: Micros
    expires_at: Micros
    ended_at: Micros | None
    events: Mapping[StreamId, int]
    reason: str | None = None
