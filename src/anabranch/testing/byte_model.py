"""What writers of a byte stream handed over and were told, what readers saw, and what is wrong with it.

Pure, like the ledger. A writer is a `Session`: it begins where the stream ended when it was opened, and what it wrote is
there up to some byte, and from there on what a later session wrote. So whatever a stream holds is explained by sessions
that follow each other, each at the place where it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["ByteModel", "Session"]


@dataclass(eq=False)
class Session:
    """One writer: its bytes from `start` on, of which those before `durable` are there for certain."""

    name: str
    start: int
    data: bytearray = field(default_factory=bytearray)
    durable: int = 0  # of the stream's positions

    @property
    def stop(self) -> int:
        """Behind its last byte."""
        return self.start + len(self.data)

    def explains(self, start: int, data: bytes) -> bool:
        """True if it wrote these bytes there."""
        return self.start <= start and bytes(self.data[start - self.start : start - self.start + len(data)]) == data


@dataclass
class ByteModel:
    """One byte stream. `head` and `tail` are the furthest that anybody was told; `asked` is the furthest position before
    which anybody asked to truncate."""

    name: str
    sessions: list[Session] = field(default_factory=list)
    head: int = 0
    tail: int = 0
    asked: int = 0
    violations: list[str] = field(default_factory=list)
    _seen: bytearray = field(default_factory=bytearray)
    _known: bytearray = field(default_factory=bytearray)  # 1 for a position that somebody read

    def opened(self, name: str, start: int, least: int) -> Session:
        """A writer was told where the stream ends; before it asked, somebody else had been told `least`."""
        self._tail(start, least, f"writer {name}")
        session = Session(name, start, durable=start)
        self.sessions.append(session)
        return session

    def flushed(self, session: Session) -> None:
        """All that the session wrote is durable."""
        session.durable = session.stop
        self.tail = max(self.tail, session.stop)

    def ended(self, tail: int, least: int, who: str) -> None:
        """Somebody was told that the stream ends there."""
        self._tail(tail, least, who)
        self.tail = max(self.tail, tail)

    def began(self, head: int, least: int, who: str) -> None:
        """Somebody was told that the stream begins there, and `least` had been told before."""
        if head < least:
            self.violations.append(f"{self.name}: {who} found its head at {head}, and it had been at {least}")
        if head > self.asked:
            why = f"its head is at {head}, though nobody let go of more than what lies before {self.asked}"
            self.violations.append(f"{self.name}: {why}")
        self.head = max(self.head, head)

    def read(self, start: int, data: bytes, who: str) -> None:
        """Somebody read these bytes: whoever reads there again sees the same."""
        lacking = start + len(data) - len(self._seen)
        if lacking > 0:
            self._seen += bytes(lacking)
            self._known += bytes(lacking)
        for place, byte in enumerate(data, start):
            if self._known[place] and self._seen[place] != byte:
                self.violations.append(f"{self.name}: {who} read another byte at {place} than was read before")
                return
            self._seen[place], self._known[place] = byte, 1

    def judge(self, head: int, data: bytes) -> list[str]:
        """What is wrong with all that the stream holds in the end, from its head on."""
        self.began(head, self.head, "the last reader")
        self.ended(head + len(data), self.tail, "the last reader")
        self.read(head, data, "the last reader")
        for session in self.sessions:
            begin = max(head, session.start)
            there = data[begin - head : session.durable - head] if session.durable > begin else b""
            if session.durable > begin and not (
                session.explains(begin, there) and len(there) == session.durable - begin
            ):
                why = f"what {session.name} flushed from {session.start} to {session.durable} is not there"
                self.violations.append(f"{self.name}: {why}")
        unexplained = self._unexplained(head, data)
        if unexplained is not None:
            self.violations.append(f"{self.name}: nobody wrote what is there from {unexplained} on")
        return list(dict.fromkeys(self.violations))

    def _tail(self, tail: int, least: int, who: str) -> None:
        if tail < least:
            self.violations.append(f"{self.name}: {who} found its tail at {tail}, and it had been at {least}")

    def _unexplained(self, head: int, data: bytes) -> int | None:
        """The first stretch that no row of sessions explains."""
        stop = head + len(data)
        edges = sorted({head, stop, *(each.start for each in self.sessions if head < each.start < stop)})
        writing: Sequence[Session] = [each for each in self.sessions if each.start < head]
        for begin, end in pairwise(edges):
            part = data[begin - head : end - head]
            writing = [
                each
                for each in self.sessions
                if (each in writing or each.start == begin) and each.explains(begin, part)
            ]
            if not writing:
                return begin
        return None
