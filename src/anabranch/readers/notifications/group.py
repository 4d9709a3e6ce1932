"""What a reader group offers to those who listen."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from anabranch.core.notifications import END_OF_DATA, READERS, SCALED, SEGMENTS, TRUNCATED, GroupPicture
from anabranch.readers.notifications.listen import Handle, Subscription

# Made by the store: listens for one kind, beginning with what `picture` says.
Listen: TypeAlias = Callable[[Callable[[], GroupPicture], str, Handle], Subscription]


class GroupListening:
    """The part of `ReaderGroup` that tells of changes.

    Each call returns a `Subscription`; calling that ends it. `handle` gets `Notification`s, in a task of its own: first
    one of the present state, then one for each change, whoever made it. Each has the number of segments and of readers
    behind it, and an id that rises.
    """

    _listen: Listen

    def _picture(self) -> GroupPicture:
        raise NotImplementedError

    def on_segments(self, handle: Handle) -> Subscription:
        """When the number of segments changes: each scaling of each stream, an append of a stream to one of them; 0 when
        all is read to the end, and the present number again after a reset from there."""
        return self._listen(self._picture, SEGMENTS, handle)

    def on_readers(self, handle: Handle) -> Subscription:
        """When readers join, leave, or are found dead. `detail` has `names`, all that are open, `joined` and `left`."""
        return self._listen(self._picture, READERS, handle)

    def on_end_of_data(self, handle: Handle) -> Subscription:
        """When everything is read and nothing can follow: once, or again behind a reset. Who listens later is told at
        once."""
        return self._listen(self._picture, END_OF_DATA, handle)

    def on_scaling(self, handle: Handle) -> Subscription:
        """When a stream gets other segments: `stream` says which, `detail` has `epoch`, `sealed` and `created`. Of these
        there is no present state."""
        return self._listen(self._picture, SCALED, handle)

    def on_truncation(self, handle: Handle) -> Subscription:
        """When a stream is truncated, by hand or by its retention: `detail` has `head`. Of these there is no present
        state."""
        return self._listen(self._picture, TRUNCATED, handle)
