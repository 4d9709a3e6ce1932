"""What streams under torture took over from others, according to the logs of the processes that requested it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anabranch as ab
from anabranch.core.copy import CopyResult
from anabranch.errors import AnabranchError, StreamNotFound
from anabranch.model.cut import StreamCut
from anabranch.model.pointer import EventPointer
from tests.simulation.changes import BY_NAME, COPY
from tests.simulation.inheritance import Joint
from tests.simulation.ledger import Event, Ledger
from torture.child import Child
from torture.stream_logs import StreamLogs, event_of

_EVER = 1 << 63


class TakenOver:
    """`ledgers` has all existing streams by name, `transfers` what was taken over, by request; `wrong` is what is wrong
    with copies at the cut of their source. Requests without an answer are repeated."""

    def __init__(
        self, store: ab.Store, streams: Sequence[StreamLogs], ledgers: Mapping[str, Ledger], children: Sequence[Child]
    ) -> None:
        self.ledgers = dict(ledgers)
        self.transfers: dict[str, list[Joint]] = {}
        self.wrong: list[str] = []
        self._copies: dict[str, CopyResult] = {}
        self._store = store
        self._when = {told.stream: _Times(told) for told in streams}
        for child in children:
            self._read_log(child)

    def _read_log(self, child: Child) -> None:
        asked: dict[str, tuple[int, list[str]]] = {}
        gone: dict[str, None] = {}
        for stamp, (word, *rest) in child.stamped():
            match word:
                case "made":
                    self._source(rest[0], rest[1:])
                case "ask":
                    asked[rest[0]] = stamp, rest[1:]
                case "answer" if rest[0] in asked:
                    invoked, request = asked.pop(rest[0])
                    self._answered(rest[0], request, invoked, stamp, BY_NAME[request[0]].from_text(rest[1]))
                case "refused-change":
                    asked.pop(rest[0], None)
                case "holds":
                    self._compare(rest[0], StreamCut.parse(rest[1]))
                case "dropping":
                    gone[rest[0]] = None
        for number in gone:
            for transfer in self.transfers.get(number, ()):
                self.ledgers.pop(transfer.heir.label, None)
        for number, (invoked, request) in asked.items():
            self._retry_request(number, request, invoked)

    def _source(self, name: str, events: Sequence[str]) -> None:
        """Adds a stream that was filled at once and never written to again."""
        ledger = self.ledgers[name] = Ledger(name)
        for text in events:
            event, _, place = text.partition(":")
            made = ledger.attempt(event_of(event).writer, event_of(event).key)
            assert made == event_of(event)
            ledger.acked(made, EventPointer.parse(place))

    def _retry_request(self, number: str, request: list[str], invoked: int) -> None:
        kind, target, source = request
        change = BY_NAME[kind]
        if change.parts is None:
            return
        try:
            answer = change.ask(self._store, number, target, source)
        except AnabranchError:  # refused, so it was not made
            return
        self._answered(number, request, invoked, _EVER, answer)

    def _answered(self, number: str, request: list[str], invoked: int, at: int, answer: Any) -> None:
        kind, target, source = request
        change = BY_NAME[kind]
        if change.parts is None:
            return
        heir = self.ledgers.setdefault(target, Ledger(target))
        transfer = Joint(f"{number} of {source}", self.ledgers[source], heir, invoked)
        transfer.owed = self._acked(source, invoked)
        transfer.before = self._acked(target, invoked)
        if change is COPY:
            self._copies[number] = answer
        try:
            parts = change.parts(self._store, transfer.source, answer)
        except StreamNotFound:  # the copy has been deleted
            parts = {}
        transfer.answer(parts, at)
        transfer.attempted = self._attempted(target, at)
        self.transfers[number] = [transfer]

    def _compare(self, number: str, tail: StreamCut) -> None:
        """A copy ends where its result says, whatever the source took over since."""
        told = self._copies[number].cut(self._copies[number].end)
        if told != tail:
            self.wrong.append(f"{number}: the result of the copy names the end {told}, and it ends at {tail}")

    def _acked(self, stream: str, before: int) -> frozenset[Event]:
        if stream in self._when:
            return frozenset(event for at, event in self._when[stream].acked if at < before)
        return self.ledgers[stream].owed

    def _attempted(self, stream: str, before: int) -> frozenset[Event]:
        if stream in self._when:
            return frozenset(event for at, event in self._when[stream].tried if at < before)
        return frozenset(self.ledgers[stream].fates)


class _Times:
    """When a stream's writers wrote events, and when these were acknowledged."""

    def __init__(self, told: StreamLogs) -> None:
        self.tried: list[tuple[int, Event]] = []
        self.acked: list[tuple[int, Event]] = []
        for child in told.writers:
            for at, (word, *rest) in child.stamped():
                if word in ("try", "unit"):
                    self.tried += [(at, event_of(text)) for text in rest]
                elif word == "acked":
                    self.acked.append((at, event_of(rest[0])))
