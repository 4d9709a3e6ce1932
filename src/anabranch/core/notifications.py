"""What happened to streams and reader groups, as those who listen are told. Pure.

A notification is a row of the change outbox in other words, and has its number. Those that a group's listeners get are
worked out from these by `step`, one after the other, so that whoever begins anywhere with the state as of then comes to
the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from anabranch.core.group import GroupState
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName

# Kinds that concern a reader group. All others are those of the change outbox: created, scaled, truncated, sealed …
READERS: Final = "readers"
END_OF_DATA: Final = "end of data"
GROUP_RESET: Final = "group reset"
SEGMENTS: Final = "segments"  # which a group's listeners get for whatever changes the number of segments
SCALED: Final = "scaled"
TRUNCATED: Final = "truncated"
PRESENT: Final = "present"  # what a listener to a stream gets first: nothing changed


@dataclass(frozen=True, slots=True)
class Notification:
    """One change. `id` rises from each to the next, whatever they concern; `at` is when it was made.

    `stream` is the stream's name when this was noted down, `stream_id` its id. `group` is the reader group that it
    concerns. `segments` and `readers` are how many there are behind the change, where it changes them; what a group's
    listener gets has both, of all streams of the group. `detail` is what else is known of it, JSON-able.
    """

    id: int
    at: Micros
    kind: str
    stream: str | None = None
    stream_id: StreamId | None = None
    group: str | None = None
    segments: int | None = None
    readers: int | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


def notification_of(
    sequence: int, at: Micros, kind: str, stream: StreamId | None, name: str | None, detail: Mapping[str, Any]
) -> Notification | None:
    """A row of the outbox; None for one of the store's own streams and scopes, of which nobody wants to hear. `name` is
    what the stream is called, as far as anybody knows."""
    if kind in (READERS, END_OF_DATA, GROUP_RESET):
        return Notification(sequence, at, kind, None, None, detail["group"], None, detail["readers"], detail)
    if internal_name(name) or str(detail.get("scope", "")).startswith("_"):
        return None
    return Notification(sequence, at, kind, name, stream, None, detail.get("segments"), None, detail)


def internal_name(name: str | None) -> bool:
    """True for the name of a stream that the store keeps for itself."""
    return name is not None and StreamName.parse(name).internal


# what an update of a group's state tells


def told_of_group(group: str, before: GroupState, after: GroupState) -> list[tuple[str, dict[str, object]]]:
    """The rows of the change outbox that belong to an update of a group's state; none for most. A reader that was taken
    over by another of its name has both left and joined."""
    told: list[tuple[str, dict[str, object]]] = []
    old = {(name, member.session) for name, member in before.members.items()}
    new = {(name, member.session) for name, member in after.members.items()}
    common = {"group": group, "readers": len(after.members)}
    if after.resets != before.resets:
        told.append((GROUP_RESET, {**common, "resets": after.resets}))
    if old != new:
        joined, left = sorted(name for name, _ in new - old), sorted(name for name, _ in old - new)
        told.append((READERS, {**common, "names": sorted(after.members), "joined": joined, "left": left}))
    if after.ended and not before.ended:
        told.append((END_OF_DATA, common))
    return told


# what a group's listeners get


@dataclass(frozen=True, slots=True)
class GroupPicture:
    """What is known of a group: how many segments each of its streams has, its readers, and whether it is read to the
    end."""

    group: str
    segments: Mapping[StreamId, int]
    readers: tuple[str, ...] = ()
    ended: bool = False

    @property
    def count(self) -> int:
        """How many segments there are to read: none at the end."""
        return 0 if self.ended else sum(self.segments.values())

    def present(self, ident: int, at: Micros) -> tuple[Notification, ...]:
        """What who listens from now on is told first."""
        count, readers = self.count, len(self.readers)
        base = Notification(ident, at, SEGMENTS, group=self.group, segments=count, readers=readers)
        names = {"names": list(self.readers), "joined": [], "left": []}
        ends = (replace(base, kind=END_OF_DATA),) if self.ended else ()
        return (base, replace(base, kind=READERS, detail=names), *ends)

    def to_json(self) -> dict[str, Any]:
        """As JSON; `docs/FORMATS.md` tells the fields."""
        segments = {f"{stream:016x}": count for stream, count in sorted(self.segments.items())}
        return {"group": self.group, "segments": segments, "readers": list(self.readers), "ended": self.ended}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> GroupPicture:
        """The inverse of `to_json`."""
        segments = {StreamId(int(stream, 16)): int(count) for stream, count in told["segments"].items()}
        return cls(told["group"], segments, tuple(told["readers"]), told["ended"])


def step(picture: GroupPicture, each: Notification) -> tuple[GroupPicture, tuple[Notification, ...]]:
    """What is known behind one more notification, and what the group's listeners get for it."""
    if each.group is not None:
        return _own(picture, each) if each.group == picture.group else (picture, ())
    if each.stream_id is None or each.stream_id not in picture.segments:
        return picture, ()
    told = []
    if each.kind in (SCALED, TRUNCATED):
        told.append(each.kind)
    if each.segments is not None:
        picture = replace(picture, segments={**picture.segments, each.stream_id: each.segments})
        if not picture.ended:
            told.append(SEGMENTS)
    return picture, tuple(_said(picture, each, kind) for kind in told)


def _own(picture: GroupPicture, each: Notification) -> tuple[GroupPicture, tuple[Notification, ...]]:
    if each.kind == READERS:
        picture = replace(picture, readers=tuple(each.detail["names"]))
        return picture, (_said(picture, each, READERS),)
    if each.kind == END_OF_DATA:
        picture = replace(picture, ended=True)
        return picture, (_said(picture, each, SEGMENTS), _said(picture, each, END_OF_DATA))
    begins_anew, picture = picture.ended, replace(picture, ended=False)
    return picture, ((_said(picture, each, SEGMENTS),) if begins_anew else ())


def _said(picture: GroupPicture, each: Notification, kind: str) -> Notification:
    return replace(each, kind=kind, group=picture.group, segments=picture.count, readers=len(picture.readers))
