"""Changes of streams and reader groups, in the form that listeners get. Pure.

A notification corresponds to a row of the change outbox, with the same number. `apply_notification` derives
from the notifications, in order, what the listeners of a group get. So a listener that starts later, with the group's
state at that point, gets the same notifications from there on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from anabranch.catalog.state.listener import GroupSummary
from anabranch.core.group import GroupState
from anabranch.model.ids import Micros, StreamId
from anabranch.model.names import StreamName

# Kinds that concern a reader group. All others are those of the change outbox: created, scaled, truncated, sealed …
READERS: Final = "readers"
END_OF_DATA: Final = "end of data"
GROUP_RESET: Final = "group reset"
GROUP_PASSED: Final = "group passed"  # of a stream and a group: retention removed events that the group had not read
SEGMENTS: Final = "segments"  # sent to a group's listeners for every change of the number of segments
SCALED: Final = "scaled"
TRUNCATED: Final = "truncated"
PRESENT: Final = "present"  # the first notification for a listener of a stream: nothing changed


@dataclass(frozen=True, slots=True)
class Notification:
    """One change. `id` increases from one notification to the next, over all streams and groups; `at` is when the
    change was made.

    `stream` is the stream's name when the change was recorded, `stream_id` its id. `group` is the reader group that the
    change concerns. `segments` and `readers` are the counts after the change, if the change affects them; a group's
    listeners get both, over all streams of the group. `detail` holds further information, as JSON-able values."""

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
    """A row of the outbox as a notification; None for the store's internal streams and scopes. `name` is the stream's
    name, if known."""
    if kind in (READERS, END_OF_DATA, GROUP_RESET):
        return Notification(sequence, at, kind, None, None, detail["group"], None, detail["readers"], detail)
    if kind == GROUP_PASSED:
        return Notification(sequence, at, kind, name, stream, detail["group"], None, None, detail)
    if internal_name(name) or str(detail.get("scope", "")).startswith("_"):
        return None
    return Notification(sequence, at, kind, name, stream, None, detail.get("segments"), None, detail)


def internal_name(name: str | None) -> bool:
    """True for the name of one of the store's internal streams."""
    return name is not None and StreamName.parse(name).internal


# changes recorded for an update of a group's state


def changes_of_group_update(group: str, before: GroupState, after: GroupState) -> list[tuple[str, dict[str, object]]]:
    """The rows of the change outbox for an update of a group's state; none for most updates. A reader that was taken
    over by another one of the same name is in both `left` and `joined`."""
    kinds: list[tuple[str, dict[str, object]]] = []
    old = {(name, member.session) for name, member in before.members.items()}
    new = {(name, member.session) for name, member in after.members.items()}
    common = {"group": group, "readers": len(after.members)}
    if after.resets != before.resets:
        streams = [f"{stream:016x}" for stream in after.streams]
        changed = {"streams": streams} if after.streams != before.streams else {}
        kinds.append((GROUP_RESET, {**common, "resets": after.resets, **changed}))
    if old != new:
        joined, left = sorted(name for name, _ in new - old), sorted(name for name, _ in old - new)
        kinds.append((READERS, {**common, "names": sorted(after.members), "joined": joined, "left": left}))
    if after.ended and not before.ended:
        kinds.append((END_OF_DATA, common))
    return kinds


# notifications for a group's listeners


def present_state(summary: GroupSummary, ident: int, at: Micros) -> tuple[Notification, ...]:
    """The first notifications for a new listener of a group."""
    base = _with_counts(summary, Notification(ident, at, SEGMENTS), SEGMENTS)
    names = {"names": list(summary.readers), "joined": [], "left": []}
    ends = (replace(base, kind=END_OF_DATA),) if summary.ended else ()
    return (base, replace(base, kind=READERS, detail=names), *ends)


def apply_notification(summary: GroupSummary, each: Notification) -> tuple[GroupSummary, tuple[Notification, ...]]:
    """The summary after one more notification, and the notifications that the group's listeners get for it."""
    if each.group is not None:
        return _apply_group_change(summary, each) if each.group == summary.group else (summary, ())
    if each.stream_id is None or each.stream_id not in summary.segments:
        return summary, ()
    kinds = []
    if each.kind in (SCALED, TRUNCATED):
        kinds.append(each.kind)
    if each.segments is not None:
        summary = summary._replace(segments={**summary.segments, each.stream_id: each.segments})
        if not summary.ended:
            kinds.append(SEGMENTS)
    return summary, tuple(_with_counts(summary, each, kind) for kind in kinds)


def _apply_group_change(summary: GroupSummary, each: Notification) -> tuple[GroupSummary, tuple[Notification, ...]]:
    if each.kind == READERS:
        summary = summary._replace(readers=tuple(each.detail["names"]))
        return summary, (_with_counts(summary, each, READERS),)
    if each.kind == END_OF_DATA:
        summary = summary._replace(ended=True)
        return summary, (_with_counts(summary, each, SEGMENTS), _with_counts(summary, each, END_OF_DATA))
    if each.kind == GROUP_PASSED:
        return summary, (_with_counts(summary, each, GROUP_PASSED),)
    restarted, summary = summary.ended or "streams" in each.detail, summary._replace(ended=False)
    return summary, ((_with_counts(summary, each, SEGMENTS),) if restarted else ())


def _with_counts(summary: GroupSummary, each: Notification, kind: str) -> Notification:
    return replace(each, kind=kind, group=summary.group, segments=summary.segments_left, readers=len(summary.readers))
