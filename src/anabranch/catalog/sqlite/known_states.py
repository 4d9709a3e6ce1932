"""The states of logs, writers and producers as one connection last read or wrote them, so that a commit need not read them again."""

from __future__ import annotations

from anabranch import limits
from anabranch.model.append import LogState, Progress
from anabranch.model.ids import LogId, Micros, StreamId, WriterId
from anabranch.model.producer import ProducerState

LogWriter = tuple[LogId, WriterId]
StreamProducer = tuple[StreamId, str]


class KnownStates:
    """What a connection knows of logs, writers and producers, valid for one version of the database.

    SQLite's version of a connection changes with every commit, its own ones and those of other connections. So states
    are known only from one commit to the next, and only if nothing else was committed in between. `progress` holds None
    for a writer that has none, `producers` for a producer that does not exist. A commit changes the dictionaries in place, between `begin` and `end`; if it fails there
    is no `end`, and the next `begin` forgets everything.
    """

    __slots__ = ("_version", "horizon", "logs", "producers", "progress")

    def __init__(self) -> None:
        self.logs: dict[LogId, LogState] = {}
        self.progress: dict[LogWriter, Progress | None] = {}
        self.producers: dict[StreamProducer, ProducerState | None] = {}
        self.horizon: Micros | None = None
        self._version: int | None = None

    def begin(self, version: int) -> KnownStates:
        """Call this in the transaction, with the database's version there. Forgets what is not of that version."""
        known = len(self.progress) + len(self.logs) + len(self.producers)
        if version != self._version or known > limits.KNOWN_STATES_MAX:
            self.logs, self.progress, self.producers, self.horizon = {}, {}, {}, None
        self._version = None
        return self

    def end(self, version: int) -> None:
        """Call this after the transaction has ended, with the version that it left."""
        self._version = version
