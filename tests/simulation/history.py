"""Histories: the operations that clients requested on segments, their answers, and what is wrong with them.

Pure: it uses no store. `check` first looks for the named faults of logs, each reported with the operations that show
it. For a segment without any, it checks whether its history is linearizable (see `linearize`). Times are numbers of one
clock that all clients share.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from tests.simulation.linearize import Search
from tests.simulation.operations import Anomaly, Fault, Kind, Log, Operation, Outcome, Stored

__all__ = ["Anomaly", "Fault", "Kind", "Operation", "Outcome", "Stored", "check"]


def check(operations: Iterable[Operation], stored: Mapping[str, Stored] | None = None) -> list[Anomaly]:
    """Returns what is wrong with a history; empty if nothing is. `stored` is what every segment holds after it."""
    return _Check(list(operations), stored).run()


class _Check:
    def __init__(self, operations: list[Operation], stored: Mapping[str, Stored] | None) -> None:
        self._operations = operations
        self._stored = stored
        self._by_event: dict[str, list[Operation]] = defaultdict(list)
        for operation in operations:
            if operation.kind is Kind.APPEND:
                for event in operation.events:
                    self._by_event[event].append(operation)
        self._logs: dict[str, Log] = {}
        self._places: dict[str, dict[tuple[str, int], None]] = defaultdict(dict)
        self._found: list[Anomaly] = []
        self._seen: dict[str, Operation] = {}

    def run(self) -> list[Anomaly]:
        self._gather()
        self._seen = self._first_seen()
        self._contents()
        self._units()
        self._views()
        broken = {anomaly.segment for anomaly in self._found}
        for name, log in self._logs.items():
            if self._stored is None:
                log.length += self._homeless(name)
            if name not in broken:
                self._found += Search(name, log).run()
        return self._found

    def _tell(self, fault: Fault, segment: str, why: str, *operations: Operation) -> None:
        self._found.append(Anomaly(fault, segment, why, operations))

    def _log(self, segment: str) -> Log:
        return self._logs.setdefault(segment, Log())

    def _gather(self) -> None:
        """Groups all information by segment: which event is at which offset, according to which operations."""
        for operation in self._operations:
            if not operation.segment:
                continue
            log = self._log(operation.segment)
            log.operations.append(operation)
            if operation.outcome is Outcome.OK and operation.offset is not None:
                log.length = max(log.length, operation.stop)
                for offset, event in enumerate(operation.events, operation.offset):
                    log.claims[offset].setdefault(event, []).append(operation)
        for segment, (head, events) in (self._stored or {}).items():
            log = self._log(segment)
            log.length = max(log.length, head + len(events))
            for offset, event in enumerate(events, head):
                log.claims[offset].setdefault(event, [])
        for segment, log in self._logs.items():
            for offset, claims in sorted(log.claims.items()):
                for event in claims:
                    self._places[event][segment, offset] = None
        for event, writers in self._by_event.items():
            places = self._places.get(event)
            if places:  # appends whose answer did not give the place
                for operation in writers:
                    if operation.outcome is not Outcome.REFUSED and not operation.segment:
                        self._logs[next(iter(places))[0]].operations.append(operation)

    def _homeless(self, segment: str) -> int:
        """Returns how many more events the segment may hold, if it was not read completely at the end."""
        lost = [each for each in self._operations if each.kind is Kind.APPEND and each.outcome is Outcome.UNKNOWN]
        events = [event for each in lost if each.segment in ("", segment) for event in each.events]
        return sum(event not in self._places for event in events)

    # faults of content

    def _contents(self) -> None:
        for segment, log in self._logs.items():
            stored = None if self._stored is None else self._stored.get(segment, Stored(0, ()))
            for offset, claims in sorted(log.claims.items()):
                if len(claims) > 1:
                    self._differ(segment, offset, claims, stored)
                elif stored is not None and offset >= stored.head + len(stored.events):
                    event, witnesses = next(iter(claims.items()))
                    self._tell(Fault.LOST, segment, f"{event} at {offset} is not stored", *witnesses)
        for event, writers in self._by_event.items():
            placeless = [each for each in writers if each.outcome is Outcome.OK and not each.segment]
            if placeless and event not in self._places and not self._excused(placeless[0]):
                self._tell(Fault.LOST, "", f"{event} is not stored", *placeless)
        for event, places in self._places.items():
            segment = next(iter(places))[0]
            writers = self._by_event.get(event, [])
            if len(places) > 1:
                self._tell(Fault.DUPLICATED, segment, f"{event} lies at {_listed(places)}", *writers)
            if writers and all(writer.outcome is Outcome.REFUSED for writer in writers):
                self._tell(Fault.ABORTED, segment, f"{event} lies at {_listed(places)}", *writers)
            if not writers and self._by_event:
                self._tell(Fault.INVENTED, segment, f"{event} lies at {_listed(places)}")

    def _differ(
        self, segment: str, offset: int, claims: Mapping[str, Sequence[Operation]], stored: Stored | None
    ) -> None:
        kept = None if stored is None or offset < stored.head else stored.events[offset - stored.head :][:1]
        for event, witnesses in claims.items():
            if kept is not None and (event,) != kept and len(self._places[event]) == 1:
                self._tell(Fault.LOST, segment, f"{event} at {offset} is not stored", *witnesses)
        shown = [witness for witnesses in claims.values() for witness in witnesses[:1]]
        self._tell(Fault.INCONSISTENT, segment, f"at {offset} lie {' and '.join(claims)}", *shown)

    def _units(self) -> None:
        """An atomic unit is stored completely or not at all, and no client sees a part of it. Truncation may remove
        a part."""
        units: dict[object, list[Operation]] = defaultdict(list)
        for operation in self._operations:
            if operation.kind is Kind.APPEND and (operation.unit is not None or len(operation.events) > 1):
                units[operation.unit or id(operation)].append(operation)
        looks = self._looks()
        for operations in units.values():
            there = [event for each in operations for event in each.events if event in self._places]
            missing = [each for each in operations if not all(event in self._places for event in each.events)]
            if there and any(not self._excused(each) for each in missing):
                count = sum(len(operation.events) for operation in operations)
                segment = next(iter(self._places[there[0]]))[0]
                self._tell(Fault.TORN, segment, f"{len(there)} of {count} events are there", *operations)
            else:
                self._halves(there, looks, operations)

    def _excused(self, append: Operation) -> bool:
        """True if it is unknown whether the append is stored: truncation may have removed it, or there was no final
        read."""
        if self._stored is None:
            return True
        where = append.segment or append.into
        return any(stored.head for segment, stored in self._stored.items() if segment.startswith(where))

    def _first_seen(self) -> dict[str, Operation]:
        """Returns for each event the first read that showed it."""
        seen: dict[str, Operation] = {}
        for log in self._logs.values():
            for read in log.answered(Kind.READ):
                for event in read.events:
                    if event not in seen or (read.completed or 0) < (seen[event].completed or 0):
                        seen[event] = read
        return seen

    def _looks(self) -> dict[str, list[tuple[int, int, Operation]]]:
        """Returns for each segment the reads of its tail, by when they began; each with the least length that it or
        a later one saw."""
        found: dict[str, list[tuple[int, int, Operation]]] = {}
        for segment, log in self._logs.items():
            looks = [each for each in log.answered(*Kind) if each.kind in (Kind.TAIL, Kind.SEAL) or each.to_tail]
            least: Operation | None = None
            listed = []
            for look in sorted(looks, key=lambda each: each.invoked, reverse=True):
                least = look if least is None or look.stop < least.stop else least
                listed.append((look.invoked, least.stop, least))
            found[segment] = listed[::-1]
        return found

    def _halves(
        self,
        there: Sequence[str],
        looks: Mapping[str, list[tuple[int, int, Operation]]],
        operations: Sequence[Operation],
    ) -> None:
        """Reports a unit of which one event was seen, while a read that began later did not show another."""
        first = min(
            (self._seen[event] for event in there if event in self._seen),
            key=lambda read: read.completed or 0,
            default=None,
        )
        if first is None:
            return
        for event in there:
            segment, offset = next(iter(self._places[event]))
            listed = looks.get(segment, [])
            place = bisect_right(listed, first.completed or 0, key=lambda each: each[0])
            if place < len(listed) and listed[place][1] <= offset:
                why = f"a part of it had been seen, and {event} was not there at {offset} yet"
                self._tell(Fault.TORN, segment, why, first, listed[place][2], *operations[:1])
                return

    # faults of what was seen

    def _views(self) -> None:
        for event, read in self._seen.items():
            asked_for = min((each.invoked for each in self._by_event.get(event, ())), default=None)
            if asked_for is not None and read.completed is not None and read.completed < asked_for:
                self._tell(Fault.EARLY, read.segment, f"{event} was seen", read, *self._by_event[event][:1])
        for segment, log in self._logs.items():
            self._sessions(segment, log)
            self._stale(segment, log)

    def _sessions(self, segment: str, log: Log) -> None:
        """One client's reads continue where the last one stopped, and the tails that it sees never decrease."""
        last: dict[tuple[str, Kind], Operation] = {}
        for operation in sorted(log.answered(Kind.READ, Kind.TAIL), key=lambda each: each.invoked):
            before = last.get((operation.client, operation.kind))
            last[operation.client, operation.kind] = operation
            if before is None or before.completed is None or before.completed > operation.invoked:
                continue
            if operation.kind is Kind.TAIL and operation.stop < before.stop:
                why = f"its tail went from {before.stop} to {operation.stop}"
                self._tell(Fault.NON_MONOTONIC, segment, why, before, operation)
            elif operation.kind is Kind.READ and (operation.offset or 0) < before.stop:
                why = f"it went on at {operation.offset}, behind {before.stop}"
                self._tell(Fault.NON_MONOTONIC, segment, why, before, operation)
            elif operation.kind is Kind.READ and (operation.offset or 0) > before.stop:
                why = f"it went on at {operation.offset} and skipped what lies from {before.stop} on"
                self._tell(Fault.UNSEEN, segment, why, before, operation)

    def _stale(self, segment: str, log: Log) -> None:
        """A read of the tail shows everything that was reported to any client before it began."""
        known = [each for each in log.answered(*Kind) if each.offset is not None]
        known.sort(key=lambda each: each.completed or 0)
        looks = [each for each in known if each.kind in (Kind.TAIL, Kind.SEAL) or each.to_tail]
        longest: Operation | None = None
        place = 0
        for look in sorted(looks, key=lambda each: each.invoked):
            while place < len(known) and (known[place].completed or 0) < look.invoked:
                if longest is None or known[place].stop > longest.stop:
                    longest = known[place]
                place += 1
            if longest is not None and look.stop < longest.stop and not _sank(longest, look):
                why = f"it ended at {look.stop}, though there had been {longest.stop}"
                self._tell(Fault.UNSEEN, segment, why, longest, look)


def _sank(before: Operation, after: Operation) -> bool:
    """True if this is reported already, as one client's decreasing tail."""
    return before.client == after.client and before.kind is after.kind is Kind.TAIL


def _listed(places: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{segment} {offset}" for segment, offset in places)
