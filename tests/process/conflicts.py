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
from anabranch.core.stitch import Joined
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId
from anabranch.model.pointer import EventPointer
from anabranch.store import Store

Place = tuple[SegmentId, int]
Events = dict[Place, str]
Names = Mapping[str, StreamId]


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


def judge(store: Store, calls: Sequence[Call]) -> list[str]:
    """What is wrong; nothing where all went well."""
    with store.catalog.reading() as reading:
        changes = reading.changes(0, 1_000_000)
    history = _History(calls)
    for change in changes:
        history.add(change)
    wrong = [*history.wrong, *(problem for call in calls for problem in history.explain(call))]
    wrong += [f"nobody was told of {change.kind} {change.detail}" for change in changes if not history.claimed(change)]
    present = {str(info.name): info.id for info in store.streams.list()}
    if present != dict(history.names):
        wrong.append(f"the streams are {present}, and by the changes {history.names}")
    for name, stream in present.items():
        wrong += _compared(name, history.visible(stream), _stored(store, name))
    return wrong


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
    events: Events = field(default_factory=dict)
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

    def __init__(self, calls: Sequence[Call]) -> None:
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
                self._begin(change, detail["name"], _between(self._all(source), start, end, self._heads(source)))
            case "appended" if made is not None:
                self._stream(change.stream).events.update(self._moved(Joined.from_json(made.answer)))
            case "stitched" if made is not None:
                events = self._moved(Joined.from_json(made.answer))
                if not detail["kept"]:
                    # The sources' deletions stand in the outbox too, ahead of this.
                    gone = [name for name in made.names[1:] if name in self.names]
                    self.wrong += [f"{name} is still there behind {made}" for name in gone]
                self._begin(change, detail["name"], events)
            case "renamed":
                if self.names.pop(detail["from"], None) != change.stream or detail["to"] in self.names:
                    self.wrong.append(f"{detail} can't be renamed among {self.names}")
                self.names[detail["to"]] = _known(change)
            case "deleted":
                if self.names.pop(detail["name"], None) != change.stream:
                    self.wrong.append(f"{detail} can't be deleted among {self.names}")
            case "truncated":
                self._stream(change.stream).heads.append(StreamCut.parse(detail["head"]))
        self._states.append((change.sequence, dict(self.names)))

    def _begin(self, change: Change, name: str, events: Events) -> None:
        if name in self.names:
            self.wrong.append(f"{change.kind} {name}, which was there: {self.names}")
        stream = _known(change)
        self.names[name] = stream
        both = self._written.get(stream, {}).keys() & events.keys()
        self.wrong += [f"at {place} of {name} something was written that was there" for place in both]
        self._streams[stream] = _Stream({**self._written.get(stream, {}), **events})

    def _stream(self, stream: StreamId | None) -> _Stream:
        assert stream is not None
        return self._streams[stream]

    def _all(self, stream: StreamId) -> Events:
        return self._streams[stream].events

    def _heads(self, stream: StreamId) -> Sequence[StreamCut]:
        return self._streams[stream].heads

    def _moved(self, joined: Joined) -> Events:
        events: Events = {}
        for source, moves in joined.parts:
            for old, new, start, stop in moves:
                for offset in range(start, stop):
                    event = self._all(source).get((old, offset))
                    if event is None:
                        self.wrong.append(f"{old}@{offset} of {source:x} was joined, and nobody wrote it")
                    else:
                        events[new, offset] = event
        return events

    def visible(self, stream: StreamId) -> Events:
        """What can be read of a stream in the end."""
        return {p: e for p, e in self._all(stream).items() if all(_behind(cut, p) for cut in self._heads(stream))}

    # holding answers against it

    def _maker(self, change: Change) -> Call | None:
        """The call that made the change; None for one that no call tells of."""
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
        if change.kind == "deleted":  # with a stitch that takes its place
            name = change.detail["name"]
            around = [call for call in self._calls if call.seen < change.sequence <= call.known]
            return change.sequence in self._claims or any(c.verb == "replace" and name in c.names for c in around)
        return change.kind not in _KINDS.values() or change.sequence in self._claims

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


def _between(events: Events, start: StreamCut, end: StreamCut, heads: Sequence[StreamCut]) -> Events:
    every = (start, *heads)
    return {p: e for p, e in events.items() if all(_behind(cut, p) for cut in every) and not _behind(end, p)}


def _behind(cut: StreamCut, place: Place) -> bool:
    """True for what is read behind the cut. It is one of all segments of an epoch, since these streams are scaled as a
    whole: so a segment that it does not name lies behind it if it was made later."""
    offsets = dict(cut.offsets)
    segment, offset = place
    if segment in offsets:
        return offset >= offsets[segment]
    return segment.epoch > max(each.epoch for each in offsets)
