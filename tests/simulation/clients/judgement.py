"""Judges the store at the end of a run, in a fresh process, by everything that clients recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from anabranch.log.checking.check import Severity
from anabranch.model.cut import HEAD
from anabranch.model.ids import SegmentId, StreamId
from tests.simulation.clients.arena import Arena, named
from tests.simulation.history import Kind, Operation, Outcome, Stored, check
from tests.simulation.inheritance import Holding, Joint, judge_joints
from tests.simulation.ledger import Ledger, Sighting
from tests.simulation.record import place_of

if TYPE_CHECKING:
    from anabranch.store import Store

__all__ = ["checked", "held", "judge", "kept_by", "stored", "taken_over"]


def judge(arena: Arena, store: Store) -> list[str]:
    """Returns all violations: by each stream's ledger, by what streams took over from others, by the promises of
    clients, by the history of each segment, and by the store's own check."""
    ids = {ledger: stream for stream, label in arena.names.items() if (ledger := arena.ledgers[label])}
    holdings = {ledger: held(store, ledger.stream) for ledger in ids if not ledger.gone}
    wrong: list[str] = []
    for ledger, holding in holdings.items():
        wrong += ledger.judge(holding.stored, holding.heads)
    wrong += judge_joints(list(arena.joints.values()), holdings)
    for promise in arena.promises.values():
        wrong += promise(store)
    kept: dict[str, Stored] = {}
    for ledger, holding in holdings.items():
        kept |= kept_by(ids[ledger], holding, named)
    operations = arena.recorder.operations
    streams = tuple(f"{ids[ledger]:016x} " for ledger in holdings)
    history = [each for each in operations if not each.segment or each.segment in kept]
    history = [each for each in history if not each.into or each.into in streams]
    history += taken_over(arena.joints, {ledger: ids[ledger] for ledger in holdings}, kept, operations)
    wrong += [f"history: {found}" for found in check(history, kept)]
    return wrong + checked(store)


def stored(store: Store, stream: str) -> list[Sighting]:
    """Returns the whole stream, from head to tail."""
    with store.reader(stream, start=HEAD) as reader:
        return [Sighting(event.pointer, event.body) for event in reader]


def held(store: Store, stream: str) -> Holding:
    """Returns what a stream holds."""
    heads = {segment.id: segment.head for segment in store.streams.view(stream).ordered}
    return Holding(stored(store, stream), heads)


def checked(store: Store) -> list[str]:
    """Returns the findings of the store's own check."""
    ours = [f"upkeep: {each}" for each in store.upkeep_failures() if each.error.startswith("AssertionError")]
    return ours + [f"check: {finding}" for finding in store.check() if finding.severity is Severity.ERROR]


def kept_by(stream: StreamId, holding: Holding, name_of: Callable[[StreamId, bytes], str]) -> dict[str, Stored]:
    """Returns what each segment of a stream holds, in the form of a history."""
    events: dict[SegmentId, list[str]] = {segment: [] for segment in holding.heads}
    for pointer, payload in holding.stored:
        events[pointer.segment].append(name_of(stream, payload))
    return {place_of(stream, each): Stored(head, tuple(events[each])) for each, head in holding.heads.items()}


def taken_over(
    joints: Mapping[str, Sequence[Joint]],
    ids: Mapping[Ledger, StreamId],
    kept: Mapping[str, Stored],
    operations: Iterable[Operation],
) -> Iterator[Operation]:
    """Yields what segments took over from others, as appends. `inheritance` judges whether the content is right."""
    seen = _seen(operations, kept)
    for name, joint in ((name, joint) for name, group in joints.items() for joint in group):
        if joint.completed is None or joint.heir not in ids:
            continue
        for segment, part in joint.parts.items():
            place = place_of(ids[joint.heir], segment)
            there = seen[place]
            start = part.start
            while start < part.stop:  # truncated events may never have been read
                stop = start
                while stop < part.stop and stop in there:
                    stop += 1
                if stop > start:
                    append = Operation(name, Kind.APPEND, place, joint.invoked, joint.completed, Outcome.OK, start)
                    append.events = tuple(there[offset] for offset in range(start, stop))
                    yield append
                start = stop + 1


def _seen(operations: Iterable[Operation], kept: Mapping[str, Stored]) -> dict[str, dict[int, str]]:
    """Returns the event at each offset of a segment, as it is stored, or as readers saw it before it was truncated."""
    seen: dict[str, dict[int, str]] = defaultdict(dict)
    for operation in operations:
        if operation.kind is Kind.READ and operation.offset is not None:
            seen[operation.segment].update(enumerate(operation.events, operation.offset))
    for place, (head, events) in kept.items():
        seen[place].update(enumerate(events, head))
    return seen
