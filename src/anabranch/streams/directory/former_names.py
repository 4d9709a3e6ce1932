"""Former names: a lookup by a stream's former name reports its current name."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.former_names import FORMER_NAME, FORMER_NAMES, FormerName, FormerNames
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName


def current_name(txn: Reading, name: StreamName) -> StreamName | None:
    """The current name of the stream that last had this name; None where no stream had it, or it was deleted."""
    found = txn.state(FORMER_NAME, name)
    return None if found is None else found.to


def record_rename(txn: Writing, stream: StreamId, old: StreamName, new: StreamName) -> None:
    """Record the rename from `old` to `new`: all former names of the stream resolve to `new`."""
    names = (*(name for name in _former_names(txn, stream) if name not in (old, new)), old)
    _drop_names(txn, stream, [new, *names[: -limits.FORMER_NAMES_MAX]])
    names = names[-limits.FORMER_NAMES_MAX :]
    for name in names:
        if name == old or _belongs_to(txn, stream, name):
            txn.put_state(FORMER_NAME, name, FormerName(stream, new))
    txn.put_state(FORMER_NAMES, stream, FormerNames(names))


def drop_former_names(txn: Writing, stream: StreamId) -> None:
    """Remove the former names of a deleted stream."""
    names = _former_names(txn, stream)
    if names:
        # Sorted, so that two transactions that lock the same rows never wait for each other.
        _drop_names(txn, stream, sorted(names))
        txn.drop_state(FORMER_NAMES, stream)


def _former_names(txn: Reading, stream: StreamId) -> tuple[StreamName, ...]:
    found = txn.state(FORMER_NAMES, stream)
    return () if found is None else found.names


def _drop_names(txn: Writing, stream: StreamId, names: Iterable[StreamName]) -> None:
    for name in names:
        if _belongs_to(txn, stream, name):
            txn.drop_state(FORMER_NAME, name)


def _belongs_to(txn: Reading, stream: StreamId, name: StreamName) -> bool:
    """False where another stream has had the name since."""
    found = txn.state(FORMER_NAME, name)
    return found is not None and found.stream == stream
