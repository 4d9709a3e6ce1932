"""What clients of transactions wrote, flushed and were told, and what is wrong with it.

Pure, like the ledger, which every event of a transaction goes through: it says in the end whether the event is there by
right. An `Account` is one transaction; all clients that have a hand in it note in the same one. Its events become a part
of the history, atomic together, when a commit of it is asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from anabranch.model.ids import StreamId
from anabranch.model.transaction import TransactionInfo, TransactionState
from anabranch.testing.ledger import Event, Ledger
from anabranch.testing.operations import Kind, Operation, Outcome
from anabranch.testing.record import Recorder

__all__ = ["Account", "Kept", "Line"]


class Kept(Enum):
    """How far an event has come."""

    WRITTEN = "written"  # it goes with the client that wrote it
    FLUSHING = "flushing"  # it may be durable
    FLUSHED = "flushed"  # it belongs to the transaction, whoever commits it


@dataclass(eq=False)
class Line:
    """One event of a transaction; `name` is what the history calls it. `unit` is that of its flush or commit while nobody
    knows whether that took place, and then the transaction's."""

    ledger: Ledger
    stream: StreamId
    event: Event
    name: str
    kept: Kept = Kept.WRITTEN
    unit: str = ""
    operation: Operation | None = None


@dataclass(eq=False)
class Account:
    """One transaction. `fate` is what any client was told of its end, `unanswered` what may have taken place."""

    ident: str
    recorder: Recorder
    lines: list[Line] = field(default_factory=list)
    fate: TransactionState | None = None
    committing: bool = False
    unanswered: dict[str, list[Line]] = field(default_factory=dict)

    def flushing(self, lines: list[Line], unit: str) -> None:
        """A flush of these is about to be asked for. Whoever commits meanwhile may take them along."""
        self.unanswered[unit] = lines
        for line in lines:
            line.kept, line.unit = Kept.FLUSHING, unit
            if self.committing:
                self._begin(line)

    def flushed(self, lines: list[Line], unit: str) -> None:
        """The flush was answered."""
        self.answered(unit)
        for line in lines:
            line.kept, line.unit = Kept.FLUSHED, self.ident
            if line.operation is not None:
                line.operation.unit = self.ident
            if self.fate is TransactionState.COMMITTED:
                self._take(line)

    def commit(self, own: list[Line], unit: str) -> None:
        """A commit is about to be asked for, by the client that wrote `own`."""
        self.committing = True
        self.unanswered[unit] = own
        for line in self.lines:
            if line.kept is Kept.WRITTEN and line in own:
                line.unit = unit
            if line.kept is not Kept.WRITTEN or line in own:
                self._begin(line)

    def found_committed(self) -> str | None:
        """All clients have ended, and it is committed. Where one alone had asked for that, it was with all that was its own."""
        asked = [lines for lines in self.unanswered.values() if lines and lines[0].kept is Kept.WRITTEN]
        if self.fate is None and len(asked) == 1:
            for line in asked[0]:
                assert line.operation is not None
                line.operation.unit = self.ident
        return self.committed([])

    def committed(self, own: list[Line]) -> str | None:
        """Somebody was told that all is there, also `own`, which that client had not flushed. Returns what contradicts it."""
        wrong = self._told(TransactionState.COMMITTED)
        for line in self.lines:
            if line.kept is Kept.FLUSHED or line in own:
                self._take(line)
        return wrong

    def aborted(self) -> str | None:
        """Somebody was told that none of it will ever be seen. Returns what contradicts it."""
        wrong = self._told(TransactionState.ABORTED)
        for line in self.lines:
            self.drop(line)
        return wrong

    def answered(self, unit: str) -> None:
        """It is known what came of this flush or commit."""
        self.unanswered.pop(unit, None)

    def drop(self, line: Line) -> None:
        """The event is not there, nor will be."""
        line.ledger.refused(line.event)
        if line.operation is not None:
            self.recorder.end(line.operation, Outcome.REFUSED, reason="aborted", unit=None)

    def judge(self, info: TransactionInfo | None) -> list[str]:
        """What is wrong with what the catalog says of it in the end."""
        name = f"transaction {self.ident}"
        if info is None:
            return [f"{name} is forgotten"]
        if self.fate not in (None, info.state):
            return [f"{name} was told to be {self.fate.value if self.fate else None}, and is {info.state.value}"]
        if info.state is not TransactionState.COMMITTED or self.unanswered:
            return []
        noted = Counter(line.stream for line in self.lines if line.unit == self.ident)
        if dict(info.events) != dict(noted):
            return [f"{name} was committed with {dict(noted)} events by stream, and says {dict(info.events)}"]
        return []

    def _told(self, fate: TransactionState) -> str | None:
        before, self.fate = self.fate, fate
        if before in (None, fate):
            return None
        return f"transaction {self.ident} was told to be {before} first, and {fate} then"

    def _begin(self, line: Line) -> None:
        if line.operation is None:
            line.operation = self.recorder.begin(
                f"{self.ident} {line.event}",
                Kind.APPEND,
                events=(line.name,),
                unit=line.unit,
                into=f"{line.stream:016x} ",
            )

    def _take(self, line: Line) -> None:
        line.unit = self.ident
        line.ledger.acked(line.event, None)
        self._begin(line)
        assert line.operation is not None
        self.recorder.end(line.operation, Outcome.OK, unit=self.ident)
