"""Former names: who uses one that a stream had is told the name it has now."""

from __future__ import annotations

from typing import Final

from anabranch import limits
from anabranch.catalog.port import Checkpointed, Reading, Writing
from anabranch.model.ids import StreamId
from anabranch.model.names import StreamName

_RENAMED: Final = "renamed"  # pieces by former name: whose it was, and what that is called now
_FORMER: Final = "former names"  # pieces by stream id: its former names, the oldest first


def name_now(txn: Reading, name: StreamName) -> StreamName | None:
    """What the stream that last gave this name up is called now; None where there was none, or it is gone."""
    piece = txn.piece(_RENAMED, str(name))
    return None if piece is None else StreamName.parse(str(piece.value["to"]))


def remember(txn: Writing, stream: StreamId, old: StreamName, new: StreamName) -> None:
    """The stream is called `new` and no more `old`: all its former names lead there."""
    ident = f"{stream:016x}"
    names = [name for name in _former(txn, ident) if name not in (str(old), str(new))] + [str(old)]
    _forget(txn, ident, [str(new), *names[: -limits.FORMER_NAMES_MAX]])
    names = names[-limits.FORMER_NAMES_MAX :]
    for name in names:
        if name == str(old) or _owned(txn, ident, name):
            txn.put_piece(Checkpointed(_RENAMED, name, {"stream": ident, "to": str(new)}))
    txn.put_piece(Checkpointed(_FORMER, ident, {"names": names}))


def forget(txn: Writing, stream: StreamId) -> None:
    """The stream is gone, and its former names lead nowhere."""
    ident = f"{stream:016x}"
    names = _former(txn, ident)
    if names:
        # Sorted, so that two transactions that lock the same pieces never wait for each other.
        _forget(txn, ident, sorted(names))
        txn.drop_piece(_FORMER, ident)


def _former(txn: Reading, ident: str) -> list[str]:
    piece = txn.piece(_FORMER, ident)
    names = [] if piece is None else piece.value["names"]
    assert isinstance(names, list)
    return names


def _forget(txn: Writing, ident: str, names: list[str]) -> None:
    for name in names:
        if _owned(txn, ident, name):
            txn.drop_piece(_RENAMED, name)


def _owned(txn: Reading, ident: str, name: str) -> bool:
    """False where another stream had the name since."""
    piece = txn.piece(_RENAMED, name)
    return piece is not None and piece.value["stream"] == ident
