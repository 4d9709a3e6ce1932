"""Derives the violations from the logs of the processes and the final content of the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import anabranch as ab
from anabranch.log.checking.check import Severity
from anabranch.model.cut import HEAD
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from tests.simulation.clients.judgement import kept_by, taken_over
from tests.simulation.history import Stored, check
from tests.simulation.inheritance import Holding, judge_joints
from tests.simulation.ledger import Event, Ledger, Reading, Sighting
from tests.simulation.record import load
from torture import share, transact, trim
from torture.child import Child
from torture.shuffle import undo_renames
from torture.stream_logs import StreamLogs, event_of
from torture.transfers import TakenOver
from torture.workers import event_name


def ledger_of(told: StreamLogs, ident: StreamId, counts: Counter[str]) -> Ledger:
    """Returns the ledger of what the stream's writers wrote and the answers they got. `counts` gets the answers by
    kind."""
    ledger = Ledger(told.stream)
    for child in told.writers:
        for word, *rest in child.lines():
            if word in ("try", "unit"):
                events = [_attempted(ledger, text) for text in rest]
                if word == "unit":
                    ledger.unit(events)
            elif word == "acked":
                ledger.acked(event_of(rest[0]), EventPointer.parse(rest[1]))
                counts["acknowledged events"] += 1
            elif word == "refused":
                counts[f"refused: {rest[0]}"] += len(rest) - 1
                for text in rest[1:]:
                    ledger.refused(event_of(text))
            elif word == "unknown":
                counts["outcome unknown"] += len(rest)
                for text in rest:
                    ledger.unknown(event_of(text))
    ledger.readings.append(_followed(told, ident))
    return ledger


def _attempted(ledger: Ledger, text: str) -> Event:
    event = event_of(text)
    made = ledger.attempt(event.writer, event.key)
    assert made == event, f"the writer skipped a number: {text}"
    return made


def _followed(told: StreamLogs, ident: StreamId) -> Reading:
    """Returns what the followers saw, as one reading: what a killed one saw after its last position was read again
    by the next."""
    reading = Reading("follower")
    for child in told.followers:
        fresh: list[Sighting] = []
        for word, *rest in child.lines():
            if word == "saw":
                fresh += (_sighting(ident, text) for text in rest)
            elif word == "at":
                reading.seen += fresh
                fresh = []
    return reading


def _sighting(ident: StreamId, text: str) -> Sighting:
    segment, offset, payload = text.split(":", 2)
    return Sighting(EventPointer(ident, SegmentId.unpack(int(segment)), int(offset)), payload.encode())


def violations(
    store: ab.Store, streams: Sequence[StreamLogs], children: Sequence[Child], counts: Counter[str]
) -> list[str]:
    """Returns all violations. Reads the whole store; no other process may use it."""
    undo_renames(store)
    ids = {told.stream: store.streams.get(told.stream).id for told in streams}
    ledgers = {told.stream: ledger_of(told, ids[told.stream], counts) for told in streams}
    taken = TakenOver(store, streams, ledgers, children)
    holdings = {ledger: content_of(store, name) for name, ledger in taken.ledgers.items()}
    found: list[str] = []
    for ledger in ledgers.values():
        counts["events in the store"] += len(holdings[ledger].stored)
        counts["events followed"] += len(ledger.readings[0].seen)
        ledger.readings[0].owed = frozenset(event for event in ledger.pointers)
        ledger.readings[0].finished = True
    for ledger, holding in holdings.items():
        found += ledger.judge(holding.stored)
    found += taken.wrong
    found += judge_joints(list(taken.transfers.values()), holdings)
    found += _history_violations(
        children, {ledgers[name]: ident for name, ident in ids.items()}, holdings, taken, counts
    )
    found += [
        *transact.wrong(store, children, counts),
        *share.wrong(store, counts),
        *trim.wrong(store, children, counts),
    ]
    # Clocks that jump leave a horizon in the future, about which `check` warns correctly.
    return found + [f"check: {finding}" for finding in store.check() if finding.severity is Severity.ERROR]


def _history_violations(
    children: Sequence[Child],
    ids: Mapping[Ledger, StreamId],
    holdings: Mapping[Ledger, Holding],
    taken: TakenOver,
    counts: Counter[str],
) -> list[str]:
    """Returns what is wrong by the history of the streams' segments."""
    kept: dict[str, Stored] = {}
    for ledger, ident in ids.items():
        kept |= kept_by(ident, holdings[ledger], event_name)
    operations = [each for child in children for each in load(child.history())]
    counts["operations in the history"] += len(operations)
    operations += taken_over(taken.transfers, ids, kept, operations)
    return [f"history: {anomaly}" for anomaly in check(operations, kept)]


def content_of(store: ab.Store, stream: str) -> Holding:
    """Returns what a stream holds, without the padding of its events."""
    heads = {segment.id: segment.head for segment in store.streams.view(stream).ordered}
    with store.reader(stream, start=HEAD) as reader:
        return Holding([Sighting(event.pointer, event.body.rstrip(b"x")) for event in reader], heads)


def process_errors(children: Sequence[Child]) -> tuple[list[str], Counter[str]]:
    """Returns the errors that ended processes unexpectedly, and counts of the errors that processes survived."""
    raised: list[str] = []
    met = Counter[str]()
    for child in children:
        for word, *rest in child.lines():
            if word == "raised":
                raised.append(f"{child.name}: {' '.join(rest)}")
            elif word == "met":
                met[rest[0]] += 1
            elif word == "did":
                met[f"done: {rest[0]}"] += 1
    return raised, met
