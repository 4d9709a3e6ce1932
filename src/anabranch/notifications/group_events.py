"""Notifications of a reader group: subscribing to its changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeAlias, TypeVar

from anabranch.catalog.state.listener import GroupSummary
from anabranch.errors import NotFound
from anabranch.model.ids import Micros
from anabranch.notifications.kinds import (
    END_OF_DATA,
    GROUP_PASSED,
    GROUP_RESET,
    READERS,
    SCALED,
    SEGMENTS,
    TRUNCATED,
    Notification,
    apply_notification,
    present_state,
)
from anabranch.notifications.subscription import Handler, Subscription

S = TypeVar("S")

# Implemented by the store: subscribes to one kind, starting with the loaded summary, or for a named listener at its
# bookmark.
Listen: TypeAlias = Callable[[Callable[[], GroupSummary], str, Handler, str | None], Subscription]


class GroupEventFilter:
    """Derives the notifications of one kind for a group's listeners from the store's notifications, in order. With
    `keeps_summaries`, the group's state after each delivered notification is kept until it is requested. For one thread
    at a time."""

    def __init__(
        self,
        load_summary: Callable[[], GroupSummary],
        kind: str,
        *,
        summary: GroupSummary | None = None,
        keeps_summaries: bool = False,
    ) -> None:
        """Starts with the result of `load_summary` when `initial` is called, or with `summary`, the state after the
        last delivered notification, if given."""
        self._load_summary = load_summary
        self._kind = kind
        self._current = summary
        self._keeps_summaries = keeps_summaries
        self._unsaved: deque[tuple[int, GroupSummary]] = deque()

    @property
    def current(self) -> GroupSummary:
        """The group's state after all notifications processed so far."""
        assert self._current is not None, "`initial` is called first"
        return self._current

    @property
    def has_unsaved(self) -> bool:
        """True if a delivered notification's state was not requested yet."""
        return bool(self._unsaved)

    def initial(self, position: int, at: Micros) -> Sequence[Notification]:
        """The notifications of the current state, up to the change of this id. Raises GroupNotFound, StreamNotFound."""
        self._current = self._load_summary()
        self._unsaved.clear()
        return self._matching(position, present_state(self._current, position, at))

    def translate(self, each: Notification) -> Sequence[Notification]:
        """The listener's notifications for the store's next notification, which may concern anything."""
        if each.kind == GROUP_RESET and each.group == self.current.group and "streams" in each.detail:
            with suppress(NotFound):  # deleted since
                self._current = self.current._replace(segments=self._load_summary().segments)
        self._current, notifications = apply_notification(self.current, each)
        return self._matching(each.id, notifications)

    def summary_after(self, ident: int) -> GroupSummary:
        """The group's state after the delivered notification of this id; each is requested in order, once."""
        expected, summary = self._unsaved.popleft()
        assert expected == ident, "notifications are handed out in order"
        return summary

    def _matching(self, ident: int, found: Sequence[Notification]) -> Sequence[Notification]:
        matching = [each for each in found if each.kind == self._kind]
        if matching and self._keeps_summaries:
            self._unsaved.append((ident, self.current))
        return matching


class GroupListening(Generic[S]):
    """The part of a reader group that lets callers subscribe to changes.

    Each method returns a `Subscription` or a `RemoteSubscription`; calling the subscription unsubscribes. `handle` gets
    `Notification`s, in a background task: first one of the current state, then one for each change made by any process.
    Each notification has the number of segments and of readers after the change, and an increasing id.
    """

    def _subscribe(self, kind: str, handle: Handler, name: str | None) -> S:
        raise NotImplementedError

    def on_segments(self, handle: Handler, *, name: str | None = None) -> S:
        """When the number of segments changes: at each scale of a stream, or when a stream is appended to one. It is 0
        once everything is read, and the current number again after a reset."""
        return self._subscribe(SEGMENTS, handle, name)

    def on_readers(self, handle: Handler, *, name: str | None = None) -> S:
        """When readers join, leave, or are presumed dead. `detail` has `names` (all open readers), `joined`, `left`."""
        return self._subscribe(READERS, handle, name)

    def on_end_of_data(self, handle: Handler, *, name: str | None = None) -> S:
        """When everything is read and nothing can follow: once, or again after a reset. A listener that subscribes
        later is notified at once."""
        return self._subscribe(END_OF_DATA, handle, name)

    def on_scaling(self, handle: Handler, *, name: str | None = None) -> S:
        """When a stream is scaled: `stream` is its name, `detail` has `epoch`, `sealed` and `created`. No notification
        of the current state."""
        return self._subscribe(SCALED, handle, name)

    def on_truncation(self, handle: Handler, *, name: str | None = None) -> S:
        """When a stream is truncated, by a caller or by its retention: `detail` has `head`. No notification of the
        current state."""
        return self._subscribe(TRUNCATED, handle, name)

    def on_passed(self, handle: Handler, *, name: str | None = None) -> S:
        """When retention of a stream removes events that the lagging group has not read: `stream` is the stream's name,
        `detail` has `events` and `bytes`, which were removed unread, and `head`. No notification of the current
        state."""
        return self._subscribe(GROUP_PASSED, handle, name)
