"""A model of transactions: what clients wrote, flushed and were answered, and what is wrong with it.

Pure, like the ledger, which records every event of a transaction and judges at the end whether it may be stored. An
`Account` is one transaction; all clients that use it record in the same one. Its events are added to the history,
atomic together, when a commit of it is requested.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from anabranch.model.ids import StreamId
from anabranch.model.transaction import TransactionInfo, TransactionState
from tests.simulation.ledger import Event, Ledger
from tests.simulation.operations import Kind, Operation, Outcome
from tests.simulation.record import Recorder

__all__ = ["Account", "Kept", "Line"]


class Kept(Enum):
    """The progress of an event."""

    WRITTEN = "written"  # lost with the client that wrote it
    FLUSHING = "flushing"  # it may be durable
    FLUSHED = "flushed"  # part of the transaction, whichever client commits it


@dataclass(eq=False)
class Line:
    """One event of a transaction; `name` is its name in the history. `unit` is that of its flush or commit while the
    outcome of that is unknown, and then the transaction's."""

    ledger: Ledger
    stream: StreamId
    event: Event
    name: str
    kept: Kept = Kept.WRITTEN
    unit: str = ""
    operation: Operation | None = None


@dataclass(eq=False)
class Account:
    """One transaction. `fate` is the end that was reported to any client, `unanswered` what may have taken place."""

    ident: str
    recorder: Recorder
    lines: list[Line] = field(default_factory=list)
    fate: TransactionState | None = None
    committing: bool = False
    unanswered: dict[str, list[Line]] = field(default_factory=dict)

    def flushing(self, lines: list[Line], unit: str) -> None:
        """A flush of these lines is about to be requested. A concurrent commit may include them."""
        self.unanswered[unit] = lines
        for line in lines:
            line.kept, line.unit = Kept.FLUSHING, unit
            if self.committing:
                self._begin(line)

    def flushed(self, lines: list[Line], unit: str) -> None:
        """The flush was acknowledged."""
        self.answered(unit)
        for line in lines:
            line.kept, line.unit = Kept.FLUSHED, self.ident
            if line.operation is not None:
                line.operation.unit = self.ident
            if self.fate is TransactionState.COMMITTED:
                self._take(line)

    def commit(self, own: list[Line], unit: str) -> None:
        """A commit is about to be requested, by the client that wrote `own`."""
        self.committing = True
        self.unanswered[unit] = own
        for line in self.lines:
            if line.kept is Kept.WRITTEN and line in own:
                line.unit = unit
            if line.kept is not Kept.WRITTEN or line in own:
                self._begin(line)

    def found_committed(self) -> str | None:
        """All clients have ended, and it is committed. If only one client requested a commit, that client's own
        lines are included. Returns what contradicts it."""
        asked = [lines for lines in self.unanswered.values() if lines and lines[0].kept is Kept.WRITTEN]
        if self.fate is None and len(asked) == 1:
            for line in asked[0]:
                assert line.operation is not None
                line.operation.unit = self.ident
        return self.committed([])

    def committed(self, own: list[Line]) -> str | None:
        """A client got the answer that all is committed, including `own`, its unflushed lines. Returns what
        contradicts it."""
        wrong = self._told(TransactionState.COMMITTED)
        for line in self.lines:
            if line.kept is Kept.FLUSHED or line in own:
                self._take(line)
        return wrong

    def aborted(self) -> str | None:
        """A client got the answer that it is aborted. Returns what contradicts it."""
        wrong = self._told(TransactionState.ABORTED)
        for line in self.lines:
            self.drop(line)
        return wrong

    def answered(self, unit: str) -> None:
        """The outcome of this flush or commit is known."""
        self.unanswered.pop(unit, None)

    def drop(self, line: Line) -> None:
        """The event is not stored, and never will be."""
        line.ledger.refused(line.event)
        if line.operation is not None:
            self.recorder.end(line.operation, Outcome.REFUSED, reason="aborted", unit=None)

    def judge(self, info: TransactionInfo | None) -> list[str]:
        """Returns what is wrong with the state that the catalog reports at the end."""
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
