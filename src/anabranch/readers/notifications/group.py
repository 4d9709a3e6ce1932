"""What a reader group offers to those who listen."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from anabranch.core.notifications import (
    END_OF_DATA,
    READERS,
    SCALED,
    SEGMENTS,
    TRUNCATED,
    GroupPicture,
    Notification,
    step,
)
from anabranch.model.ids import Micros
from anabranch.readers.notifications.listen import Handle, Subscription

# Made by the store: listens for one kind, beginning with what `picture` says, or under a name where that one stopped.
Listen: TypeAlias = Callable[[Callable[[], GroupPicture], str, Handle, str | None], Subscription]


class GroupFold:
    """What the listeners of a group get for one kind, worked out from each notification in turn. Where `remembers`, what is
    known of the group behind each one that they get is kept until it is asked for. For one thread at a time."""

    def __init__(
        self,
        look: Callable[[], GroupPicture],
        kind: str,
        *,
        behind: GroupPicture | None = None,
        remembers: bool = False,
    ) -> None:
        """It begins with what `look` says when `first` is called, or, where that is known, with what was `behind` the last."""
        self._look = look
        self._kind = kind
        self._now = behind
        self._remembers = remembers
        self._behind: deque[tuple[int, GroupPicture]] = deque()

    @property
    def now(self) -> GroupPicture:
        """What is known of the group behind all that was looked at."""
        assert self._now is not None, "the present state is looked at first"
        return self._now

    @property
    def telling(self) -> bool:
        """True if something is told whose picture was not asked for yet."""
        return bool(self._behind)

    def first(self, position: int, at: Micros) -> Sequence[Notification]:
        """What is told of the present, up to the change of this id. Raises GroupNotFound, StreamNotFound."""
        self._now = self._look()
        self._behind.clear()
        return self._told(position, self._now.present(position, at))

    def translate(self, each: Notification) -> Sequence[Notification]:
        """What is told of the next notification, whatever that concerns."""
        self._now, told = step(self.now, each)
        return self._told(each.id, told)

    def behind(self, ident: int) -> GroupPicture:
        """What was known behind the notification of this id, which was told; each is asked for in turn, once."""
        known, picture = self._behind.popleft()
        assert known == ident, "notifications are handed out in order"
        return picture

    def _told(self, ident: int, found: Sequence[Notification]) -> Sequence[Notification]:
        wanted = [each for each in found if each.kind == self._kind]
        if wanted and self._remembers:
            self._behind.append((ident, self.now))
        return wanted


class GroupListening:
    """The part of `ReaderGroup` that tells of changes.

    Each call returns a `Subscription`; calling that ends it. `handle` gets `Notification`s, in a task of its own: first
    one of the present state, then one for each change, whoever made it. Each has the number of segments and of readers
    behind it, and an id that rises.
    """

    _listen: Listen

    def _picture(self) -> GroupPicture:
        raise NotImplementedError

    def on_segments(self, handle: Handle, *, name: str | None = None) -> Subscription:
        """When the number of segments changes: each scaling of each stream, an append of a stream to one of them; 0 when
        all is read to the end, and the present number again after a reset from there."""
        return self._listen(self._picture, SEGMENTS, handle, name)

    def on_readers(self, handle: Handle, *, name: str | None = None) -> Subscription:
        """When readers join, leave, or are found dead. `detail` has `names`, all that are open, `joined` and `left`."""
        return self._listen(self._picture, READERS, handle, name)

    def on_end_of_data(self, handle: Handle, *, name: str | None = None) -> Subscription:
        """When everything is read and nothing can follow: once, or again behind a reset. Who listens later is told at
        once."""
        return self._listen(self._picture, END_OF_DATA, handle, name)

    def on_scaling(self, handle: Handle, *, name: str | None = None) -> Subscription:
        """When a stream gets other segments: `stream` says which, `detail` has `epoch`, `sealed` and `created`. Of these
        there is no present state."""
        return self._listen(self._picture, SCALED, handle, name)

    def on_truncation(self, handle: Handle, *, name: str | None = None) -> Subscription:
        """When a stream is truncated, by hand or by its retention: `detail` has `head`. Of these there is no present
        state."""
        return self._listen(self._picture, TRUNCATED, handle, name)
