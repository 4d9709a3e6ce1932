"""Transactions as the catalog describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from anabranch.model.ids import Micros, StreamId


class TransactionState(Enum):
    """The state of a transaction. It leaves `OPEN` once, permanently."""

    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction as of its last ping, flush or end.

    `events` counts, by stream, the events it holds durably: while open, those flushed; once committed, all that it
    wrote. An open one whose `expires_at` has passed is aborted by any process that comes across it. `reason` says why a
    transaction was aborted.
    """

    id: str
    state: TransactionState
    begun_at: Micros
    expires_at: Micros
    ended_at: Micros | None
    events: Mapping[StreamId, int]
    reason: str | None = None
