"""A model of a byte stream: what writers wrote, which answers they got, what readers saw, and what is wrong with it.

Pure, like the ledger. A writer is a `Session`: it begins at the stream's end when it was opened; the stream holds its
bytes up to some position, and after that the bytes of a later session. So any valid content is explained by consecutive
sessions, each from the position where it began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["ByteModel", "Session"]


@dataclass(eq=False)
class Session:
    """One writer: its bytes from `start` on, of which those before `durable` must be in the stream."""

    name: str
    start: int
    data: bytearray = field(default_factory=bytearray)
    durable: int = 0  # a position in the stream

    @property
    def stop(self) -> int:
        """The position after its last byte."""
        return self.start + len(self.data)

    def explains(self, start: int, data: bytes) -> bool:
        """True if it wrote these bytes there."""
        return self.start <= start and bytes(self.data[start - self.start : start - self.start + len(data)]) == data


@dataclass
class ByteModel:
    """One byte stream. `head` and `tail` are the furthest positions that were reported to any client; `asked` is the
    furthest position of any requested truncation."""

    name: str
    sessions: list[Session] = field(default_factory=list)
    head: int = 0
    tail: int = 0
    asked: int = 0
    violations: list[str] = field(default_factory=list)
    _seen: bytearray = field(default_factory=bytearray)
    _known: bytearray = field(default_factory=bytearray)  # 1 for a position that was read

    def opened(self, name: str, start: int, least: int) -> Session:
        """A writer was opened and got the stream's end; before that, `least` had been reported to another client."""
        self._tail(start, least, f"writer {name}")
        session = Session(name, start, durable=start)
        self.sessions.append(session)
        return session

    def flushed(self, session: Session) -> None:
        """All that the session wrote is durable."""
        session.durable = session.stop
        self.tail = max(self.tail, session.stop)

    def ended(self, tail: int, least: int, who: str) -> None:
        """The stream's end was reported as `tail`; before that, `least` had been reported."""
        self._tail(tail, least, who)
        self.tail = max(self.tail, tail)

    def began(self, head: int, least: int, who: str) -> None:
        """The stream's beginning was reported as `head`; before that, `least` had been reported."""
        if head < least:
            self.violations.append(f"{self.name}: {who} found its head at {head}, and it had been at {least}")
        if head > self.asked:
            why = f"its head is at {head}, though nobody let go of more than what lies before {self.asked}"
            self.violations.append(f"{self.name}: {why}")
        self.head = max(self.head, head)

    def read(self, start: int, data: bytes, who: str) -> None:
        """These bytes were read; later reads of the same positions must return the same."""
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
        """Returns what is wrong with the stream's final content, from its head on."""
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
        """Returns the first position whose bytes no sequence of sessions explains."""
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
