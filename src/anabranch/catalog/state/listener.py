"""Listeners to notifications, and what was published to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, only_key, state_kind
from anabranch.model.cut import StreamCut
from anabranch.model.ids import SegmentId, StreamId


class GroupSummary(NamedTuple):
    """A reader group's state as its listeners see it: the number of segments of each of its streams, its readers, and
    whether everything was read to the end."""

    group: str
    segments: Mapping[StreamId, int]
    readers: tuple[str, ...] = ()
    ended: bool = False

    @property
    def segments_left(self) -> int:
        """How many segments there are to read; 0 at the end."""
        return 0 if self.ended else sum(self.segments.values())


@dataclass(frozen=True, slots=True)
class LastDelivered:
    """A listener's position: the id of the last notification delivered, and a cut of the notification stream at most a
    batch before the next one. For a group's listener, also the group's state at that point."""

    id: int
    cut: StreamCut
    group: GroupSummary | None = None


@dataclass(frozen=True, slots=True)
class ListenerRow:
    """The stream that it listens to, or None for all; of a reader group's listener `group`, as `KIND of NAME`. `owner`
    is new for each opening."""

    stream: StreamId | None
    group: str | None
    owner: str
    delivered: LastDelivered | None


_STREAM: Final = StreamId(0x2BCD55E1E5C62EE7)

LISTENER: Final[StateKind[str, ListenerRow]] = state_kind(
    "listener",
    about="The position of a named listener.",
    by="the listener's name",
    key=TEXT_KEY,
    value=ListenerRow,
    example=(
        "dashboard",
        ListenerRow(
            None,
            "segments of iot/readers",
            "5d41402abc4b2a76",
            LastDelivered(
                7,
                StreamCut(_STREAM, ((SegmentId(0, 0), 6),)),
                GroupSummary("iot/readers", {_STREAM: 4}, ("a", "b")),
            ),
        ),
    ),
)


ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Notified:
    """The number of that row."""

    sequence: int


NOTIFIED: Final[StateKind[str, Notified]] = state_kind(
    "notified",
    about="The last row of the change outbox that was published to the notification stream.",
    key=only_key(ALL),
    value=Notified,
    example=(ALL, Notified(512)),
)
