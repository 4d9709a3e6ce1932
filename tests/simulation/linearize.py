"""Checks whether a segment's history is linearizable: can each operation have taken place at one moment between its
invocation and its answer?

The model of a segment is small: its tail, the chained hash of all its events, its fence, and whether it is sealed.
Offsets fix the order of appends, so few choices remain: when an append of unknown outcome took place, and where fences
and seals lie between the appends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import xxhash

from tests.simulation.operations import Anomaly, Fault, Kind, Log, Operation, Outcome

__all__ = ["Search"]

CONFIGURATIONS_MAX: Final = 20_000  # beyond this a segment's search is given up, and reported as undecided
_SHOWN_MAX: Final = 4


class _Configuration(NamedTuple):
    """A state of the model, identified by the number of appends done; and which of the pending operations are done."""

    appends: int
    fence: int
    sealed: bool
    done: frozenset[int]


class Search:
    """Just-in-time linearization: walks through invocations and answers, and keeps all configurations that explain
    the answers so far. An operation takes place no earlier than an answer requires, except that one that changes
    nothing takes place in the first state that explains it: later would not be better."""

    def __init__(self, segment: str, log: Log) -> None:
        self._segment = segment
        self._operations = [operation for operation in log.operations if _matters(operation, log)]
        self._index = {id(operation): number for number, operation in enumerate(self._operations)}
        self._appends, self._tails = _order(self._operations, log)
        self._place = {id(each): place for place, each in enumerate(self._appends) if each is not None}
        self._chains = _chains(log)
        self._started: set[int] = set()
        self._pending: dict[int, Operation] = {}  # operations that are neither ordered appends nor answered

    def run(self) -> list[Anomaly]:
        """Returns an anomaly if no order explains the answers."""
        frontier = {_Configuration(0, 0, False, frozenset())}
        for operation, answered in _timeline(self._operations):
            number = self._index[id(operation)]
            if not answered:
                self._invoke(operation, number)
                frontier = {self._settled(each) for each in frontier}
                continue
            reached = self._answer(operation, number, frontier)
            if reached is None:
                return [Anomaly(Fault.UNDECIDED, self._segment, "too many orders are possible", (operation,))]
            if not reached:
                return [self._stuck(operation, frontier)]
            self._pending.pop(number, None)
            frontier = reached
        return []

    def _invoke(self, operation: Operation, number: int) -> None:
        place = self._place.get(id(operation))
        if place is not None:
            self._started.add(place)
        else:
            self._pending[number] = operation

    def _answer(self, operation: Operation, number: int, frontier: set[_Configuration]) -> set[_Configuration] | None:
        """Returns the configurations in which the operation has taken place."""
        place = self._place.get(id(operation))
        reached: set[_Configuration] = set()
        todo, seen = list(frontier), set(frontier)
        while todo:
            each = todo.pop()
            if number in each.done or (place is not None and place < each.appends):
                reached.add(each._replace(done=each.done - {number}))
                continue
            for following in self._following(each):
                settled = self._settled(following)
                if settled not in seen:
                    seen.add(settled)
                    todo.append(settled)
            if len(seen) > CONFIGURATIONS_MAX:
                return None
        return reached

    def _following(self, at: _Configuration) -> Iterator[_Configuration]:
        """Yields each state that one more operation leads to."""
        if at.appends < len(self._appends) and self._may_append(at):
            yield at._replace(appends=at.appends + 1)
        for number, operation in self._pending.items():
            if number in at.done or operation.outcome is Outcome.REFUSED:
                continue
            if operation.kind is Kind.FENCE and (operation.fence or 0) > at.fence:
                yield at._replace(fence=operation.fence or 0, done=at.done | {number})
            if operation.kind is Kind.SEAL and not at.sealed and operation.offset in (None, self._tails[at.appends]):
                yield at._replace(sealed=True, done=at.done | {number})

    def _may_append(self, at: _Configuration) -> bool:
        operation = self._appends[at.appends]
        if operation is None:
            return not at.sealed  # an append of an unknown client
        if at.appends not in self._started or at.sealed:
            return False
        tail = self._tails[at.appends]
        return operation.expected in (None, tail) and (operation.fence is None or operation.fence >= at.fence)

    def _settled(self, at: _Configuration) -> _Configuration:
        """Returns the configuration with all pending operations done that change nothing and that its state
        explains."""
        new = {n for n, each in self._pending.items() if n not in at.done and self._explains(at, each)}
        return at._replace(done=at.done | new) if new else at

    def _explains(self, at: _Configuration, operation: Operation) -> bool:
        tail = self._tails[at.appends]
        match operation.kind, operation.outcome:
            case Kind.READ, _:
                long_enough = operation.stop == tail if operation.to_tail else operation.stop <= tail
                return long_enough and self._shows(operation)
            case Kind.TAIL, _:
                return operation.offset == tail and operation.sealed in (None, at.sealed)
            case Kind.SEAL, Outcome.OK:
                return at.sealed and operation.offset in (None, tail)
            case Kind.FENCE, Outcome.OK:
                return at.fence == operation.fence
            case Kind.FENCE, Outcome.REFUSED:
                return at.fence > (operation.fence or 0)
            case Kind.APPEND, Outcome.REFUSED:
                return _refuses(operation, tail, at)
            case _:
                return False

    def _shows(self, read: Operation) -> bool:
        """True if the events carry the chained hash from the read's start to its stop."""
        chain = self._chains[read.offset or 0]
        for event in read.events:
            chain = _link(chain, event)
        return chain == self._chains[read.stop]

    def _stuck(self, operation: Operation, frontier: set[_Configuration]) -> Anomaly:
        states = sorted({(self._tails[each.appends], each.fence, each.sealed) for each in frontier})
        shown = ", ".join(f"tail {t}, fence {f}{', sealed' if s else ''}" for t, f, s in states[:_SHOWN_MAX])
        why = f"no order explains its answer; before it the segment was at: {shown}"
        pending = [each for each in self._pending.values() if each is not operation]
        return Anomaly(Fault.NOT_LINEARIZABLE, self._segment, why, (operation, *pending))


def _refuses(append: Operation, tail: int, at: _Configuration) -> bool:
    match append.reason:
        case "sealed":
            return at.sealed
        case "fenced":
            return append.fence is not None and append.fence < at.fence
        case "condition":
            return append.expected != tail
        case _:
            return True


def _matters(operation: Operation, log: Log) -> bool:
    """False for operations that changed nothing and whose answer says nothing."""
    if operation.kind is Kind.APPEND and operation.outcome is Outcome.UNKNOWN:
        return any(event in claims for claims in log.claims.values() for event in operation.events)
    if operation.kind in (Kind.READ, Kind.TAIL):
        return operation.outcome is Outcome.OK
    return operation.kind is not Kind.SEAL or operation.outcome is not Outcome.REFUSED


def _order(operations: Sequence[Operation], log: Log) -> tuple[list[Operation | None], list[int]]:
    """Returns the appends in the order of their offsets, and the tail before each and after the last. None stands
    for one event if it is unknown which append wrote it, or if that append was stored in several pieces."""
    where = {event: offset for offset, claims in log.claims.items() for event in claims}
    at: dict[int, Operation] = {}
    for operation in operations:
        if operation.kind is Kind.APPEND and operation.outcome is not Outcome.REFUSED and operation.events:
            offsets = [where.get(event, -1) for event in operation.events]
            if offsets == list(range(offsets[0], offsets[0] + len(offsets))):
                at.setdefault(offsets[0], operation)
    appends: list[Operation | None] = []
    tails = [0]
    while tails[-1] < log.length:
        found = at.get(tails[-1])
        appends.append(found)
        tails.append(tails[-1] + (1 if found is None else len(found.events)))
    return appends, tails


def _chains(log: Log) -> list[int]:
    """Returns the chained hash of all events before each offset."""
    chains = [0]
    for offset in range(log.length):
        chains.append(_link(chains[-1], next(iter(log.claims.get(offset, {"": []})))))
    return chains


def _link(chain: int, event: str) -> int:
    return int(xxhash.xxh3_64_intdigest(chain.to_bytes(8, "little") + event.encode()))


def _timeline(operations: Sequence[Operation]) -> Iterator[tuple[Operation, bool]]:
    """Returns invocations and answers in order of time; of two at one time the invocation comes first, so they
    overlap."""
    moments = [(each.invoked, False, number) for number, each in enumerate(operations)]
    moments += [
        (each.completed, True, number)
        for number, each in enumerate(operations)
        if each.completed is not None and each.outcome is not Outcome.UNKNOWN
    ]
    return ((operations[number], answered) for _, answered, number in sorted(moments))
