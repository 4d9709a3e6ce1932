"""Judging what several processes did to the same few streams at once: the outbox of changes says in which order all of it
happened, and everything else must agree with that order.

Each process tells its calls, one after another: what was asked, the last change that it had seen before and behind the
call, and the answer. `judge` replays the changes over names alone and over events by their places, and says what is wrong:
a change that could not be made, an answer that no moment of its call explains, an event that is lost, doubled or moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.catalog.port import Change
from anabranch.core.stitch import JoinResult
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.keyspace import KeyRange
from anabranch.model.pointer import EventPointer
from anabranch.store import Store

Place = tuple[SegmentId, int]
Events = dict[Place, str]
Names = Mapping[str, StreamId]
Ranges = Mapping[tuple[StreamId, SegmentId], KeyRange]


@dataclass(frozen=True)
class Call:
    """One call of a process. `seen` is the last change that it knew before, `known` the last behind it. `error` is the
    name of what was raised, None where `answer` was given."""

    who: str
    verb: str
    names: tuple[str, ...]
    seen: int
    known: int
    answer: Any
    error: str | None

    def __str__(self) -> str:
        return f"{self.who}: {self.verb} {' '.join(self.names)} within {self.seen}–{self.known}: {self.error or self.answer}"


def judge(store: Store, calls: Sequence[Call], ranges: Ranges) -> list[str]:
    """What is wrong; nothing where all went well. `ranges` are those of the segments that anybody saw: a stream that was
    gone before is not looked into, nor what was made of it."""
    with store.catalog.reading() as reading:
        changes = reading.changes(0, 1_000_000)
    history = _History(calls, ranges, _replaced(changes))
    for change in changes:
        history.add(change)
    wrong = [*history.wrong, *(problem for call in calls for problem in history.explain(call))]
    wrong += [f"nobody was told of {change.kind} {change.detail}" for change in changes if not history.claimed(change)]
    present = {str(info.name): info.id for info in store.streams.list()}
    if present != dict(history.names):
        wrong.append(f"the streams are {present}, and by the changes {history.names}")
    for name, stream in present.items():
        expected = history.visible(stream)
        if expected is not None:
            wrong += _compared(name, expected, _stored(store, name))
    return wrong


def _replaced(changes: Sequence[Change]) -> set[int]:
    """The deletions that go with a stitch which takes its sources' place: they stand right before it."""
    found: set[int] = set()
    for number, change in enumerate(changes):
        detail: Any = change.detail
        if change.kind == "stitched" and not detail["kept"]:
            gone = {part["source"] for part in detail["parts"]}
            before = changes[number - len(gone) : number]
            assert {f"{each.stream:016x}" for each in before if each.kind == "deleted"} == gone, (before, change)
            found |= {each.sequence for each in before}
    return found


def _stored(store: Store, name: str) -> list[tuple[Place, str]]:
    with store.reader(name) as reader:
        return [((event.pointer.segment, event.pointer.offset), event.body.decode()) for event in reader]


def _compared(name: str, expected: Events, found: Sequence[tuple[Place, str]]) -> Iterator[str]:
    for place, times in Counter(place for place, _ in found).items():
        if times > 1:
            yield f"{name}: {place} was read {times} times"
    there = dict(found)
    for place in sorted(expected.keys() | there.keys()):
        if expected.get(place) != there.get(place):
            yield f"{name}: at {place} is {there.get(place)}, where {expected.get(place)} belongs"


@dataclass
class _Stream:
    """`events` None: what it held is not known."""

    events: Events | None = field(default_factory=dict)
    heads: list[StreamCut] = field(default_factory=list)


# What stands in the outbox of a call.
_KINDS = {
    "create": "created",
    "copy": "copied",
    "append": "appended",
    "stitch": "stitched",
    "replace": "stitched",
    "rename": "renamed",
    "delete": "deleted",
    "truncate": "truncated",
    "scale": "scaled",
}


class _History:
    """The changes, one after another."""

    def __init__(self, calls: Sequence[Call], ranges: Ranges, replaced: set[int]) -> None:
        self._ranges = ranges
        self._replaced = replaced
        self.names: dict[str, StreamId] = {}
        self.wrong: list[str] = []
        self._streams: dict[StreamId, _Stream] = {}
        self._states: list[tuple[int, Names]] = [(0, {})]
        self._calls = [call for call in calls if call.error is None]
        self._written: dict[StreamId, Events] = {}
        self._claims: dict[int, Call] = {}
        for call in self._calls:
            if call.verb == "write":
                pointer = EventPointer.parse(call.answer)
                events = self._written.setdefault(pointer.stream, {})
                place = (pointer.segment, pointer.offset)
                if place in events:
                    self.wrong.append(f"{call.names} and {events[place]} were both acknowledged at {pointer}")
                events[place] = call.names[1]

    # replaying

    def add(self, change: Change) -> None:
        """The next change, which must be possible by those before it."""
        made = self._maker(change)
        detail: Any = change.detail
        match change.kind:
            case "created":
                self._begin(change, detail["name"], {})
            case "copied":
                source, start, end = _part(detail)
                self._begin(change, detail["name"], self._between(source, start, end))
            case "appended" if made is not None:
                events, onto = self._moved(JoinResult.from_json(made.answer)), self._streams[_known(change)]
                onto.events = None if events is None or onto.events is None else onto.events | events
            case "stitched" if made is not None:
                self._begin(change, detail["name"], self._moved(JoinResult.from_json(made.answer)))
            case "renamed":
                if self.names.pop(detail["from"], None) != change.stream or detail["to"] in self.names:
                    self.wrong.append(f"{detail} can't be renamed among {self.names}")
                self.names[detail["to"]] = _known(change)
            case "deleted":
                if self.names.pop(detail["name"], None) != change.stream:
                    self.wrong.append(f"{detail} can't be deleted among {self.names}")
            case "truncated":
                self._streams[_known(change)].heads.append(StreamCut.parse(detail["head"]))
        self._states.append((change.sequence, dict(self.names)))

    def _begin(self, change: Change, name: str, events: Events | None) -> None:
        if name in self.names:
            self.wrong.append(f"{change.kind} {name}, which was there: {self.names}")
        stream = _known(change)
        self.names[name] = stream
        written = self._written.get(stream, {})
        both = written.keys() & (events or {}).keys()
        self.wrong += [f"at {place} of {name} something was written that was there" for place in both]
        self._streams[stream] = _Stream(None if events is None else written | events)

    def _moved(self, joined: JoinResult) -> Events | None:
        """What was joined, by its new places; None where a source is not known."""
        events: Events = {}
        for source, moves in joined.parts:
            old_events = self._streams[source].events
            if old_events is None:
                return None
            for old, new, start, stop in moves:
                for offset in range(start, stop):
                    event = old_events.get((old, offset))
                    if event is None:
                        self.wrong.append(f"{old}@{offset} of {source:x} was joined, and nobody wrote it")
                    else:
                        events[new, offset] = event
        return events

    def _between(self, source: StreamId, start: StreamCut, end: StreamCut) -> Events | None:
        events, heads = self._streams[source].events, (start, *self._streams[source].heads)
        try:
            return (
                {
                    place: event
                    for place, event in (events or {}).items()
                    if all(self._behind(cut, place) for cut in heads) and not self._behind(end, place)
                }
                if events is not None
                else None
            )
        except KeyError:  # a segment that nobody saw
            return None

    def visible(self, stream: StreamId) -> Events | None:
        """What can be read of a stream in the end; None where that is not known."""
        events, heads = self._streams[stream].events, self._streams[stream].heads
        try:
            return (
                None
                if events is None
                else {place: event for place, event in events.items() if all(self._behind(cut, place) for cut in heads)}
            )
        except KeyError:
            return None

    def _behind(self, cut: StreamCut, place: Place) -> bool:
        """True for what is read behind the cut. The segments that the cut names cover the key space once; one that it
        does not name overlaps some of them, and lies behind them if it was made later."""
        offsets = dict(cut.offsets)
        segment, offset = place
        if segment in offsets:
            return offset >= offsets[segment]
        mine = self._ranges[cut.stream, segment]
        return any(self._ranges[cut.stream, each].overlaps(mine) and each.epoch < segment.epoch for each in offsets)

    # holding answers against it

    def _maker(self, change: Change) -> Call | None:
        """The call that made the change; None for one that no call tells of."""
        if change.sequence in self._replaced:
            return None
        taken = [id(call) for call in self._claims.values()]
        for call in sorted(self._calls, key=lambda call: call.known):  # who had least time left made it
            within = call.seen < change.sequence <= call.known
            if within and _KINDS.get(call.verb) == change.kind and id(call) not in taken and self._is(call, change):
                self._claims[change.sequence] = call
                return call
        return None

    def _is(self, call: Call, change: Change) -> bool:
        detail: Any = change.detail
        match call.verb:
            case "create" | "delete":
                return bool(detail["name"] == call.names[0])
            case "copy":
                return int(call.answer["copy"], 16) == change.stream
            case "stitch" | "replace":
                return int(call.answer["stream"], 16) == change.stream
            case "append":
                (part,) = call.answer["parts"]
                # What a later one appended lies in later epochs.
                epochs = [SegmentId.unpack(move[1]).epoch for move in part["moved"]]
                count = sum(move[3] - move[2] for move in part["moved"])
                same = int(call.answer["stream"], 16) == change.stream and part["source"] == detail["source"]
                return same and count == detail["events"] and all(epoch < detail["epoch"] for epoch in epochs)
            case "rename":
                return (detail["from"], detail["to"]) == call.names
            case "truncate":
                return bool(detail["head"] == call.answer)
            case "scale":
                return bool(detail["epoch"] == call.answer and self.names.get(call.names[0]) == change.stream)
        return False

    def claimed(self, change: Change) -> bool:
        """True if a call tells of the change."""
        told = change.kind not in _KINDS.values() or change.sequence in self._replaced
        return told or change.sequence in self._claims

    def explain(self, call: Call) -> Iterator[str]:
        """What is wrong with an answer."""
        moments = [names for _, names in self._within(call)]
        if call.error is not None:
            reasons = _REASONS.get(call.error)
            if reasons is None or not any(reasons(call, names) for names in moments):
                yield f"{call}: at no moment of it was that so: {moments}"
        elif call.verb == "write":
            stream = EventPointer.parse(call.answer).stream
            if not any(stream in names.values() for names in moments):
                yield f"{call}: the stream was not there"
        elif call.verb not in ("copy", "scale") and not any(call is maker for maker in self._claims.values()):
            yield f"{call}: it was done, and no change says so"
        elif call.verb == "copy":
            stream = StreamId(int(call.answer["copy"], 16))
            if not any(names.get(call.names[1]) == stream for names in moments):
                yield f"{call}: the copy was not there"

    def _within(self, call: Call) -> Iterator[tuple[int, Names]]:
        """The states that a call may have seen."""
        before = [state for state in self._states if state[0] <= call.seen][-1:]
        yield from before
        yield from (state for state in self._states if call.seen < state[0] <= call.known)


def _missing(call: Call, names: Names) -> bool:
    wanted = call.names[:1] if call.verb in ("write", "copy", "rename") else call.names
    if call.verb in ("stitch", "replace"):
        wanted = call.names[1:]
    return any(name not in names for name in wanted)


def _taken(call: Call, names: Names) -> bool:
    target = call.names[{"create": 0, "stitch": 0, "replace": 0, "copy": 1, "rename": 1}[call.verb]]
    return target in names and not (call.verb == "replace" and target in call.names[1:])


_REASONS: Mapping[str, Callable[[Call, Names], bool]] = {
    "StreamNotFound": _missing,
    "StreamRenamed": _missing,
    "StreamExists": _taken,
    "Conflict": lambda call, names: True,  # nothing was changed, for others were at it
    # A cut that was taken of a stream which has the name no more.
    "InvalidCut": lambda call, names: call.verb == "truncate",
}


def _known(change: Change) -> StreamId:
    assert change.stream is not None
    return change.stream


def _part(detail: Any) -> tuple[StreamId, StreamCut, StreamCut]:
    return StreamId(int(detail["source"], 16)), StreamCut.parse(detail["from"]), StreamCut.parse(detail["to"])
