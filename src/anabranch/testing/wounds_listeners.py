"""Wounds of listeners that have a name; see `testing.wounds`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from anabranch.core.notifications import Notification
from anabranch.readers.notifications.bookmark import Bookmark, Told
from anabranch.readers.notifications.listen import Subscription
from anabranch.testing.clients import Cast
from anabranch.testing.clients.listeners import attend, perform
from anabranch.testing.faults import Action
from anabranch.testing.simulation import Weather
from anabranch.testing.wounds import Wound, _replaced

__all__ = ["LISTENER_WOUNDS"]


@contextmanager
def note_before_it_is_told() -> Iterator[None]:
    """The bookmark is moved, and then the listener is called."""
    deliver, note = Subscription._deliver, Subscription._note

    def careless(self: Subscription, each: Notification) -> None:
        note(self, each)
        deliver(self, each)

    with (
        _replaced(Subscription, "_deliver", careless),
        _replaced(Subscription, "_note", lambda self, each: None),
    ):
        yield


def never_move_the_bookmark() -> AbstractContextManager[None]:
    """Only where a listener stood when it was opened is known."""
    keep = Bookmark.keep

    def careless(self: Bookmark, told: Told) -> None:
        if not vars(self).setdefault("_kept", False):
            keep(self, told)
            vars(self)["_kept"] = True

    return _replaced(Bookmark, "keep", careless)


def forget_what_is_known_of_the_group() -> AbstractContextManager[None]:
    """A group's listener that goes on is told of the present anew, and not of what happened meanwhile."""
    keep = Bookmark.keep

    def careless(self: Bookmark, told: Told) -> None:
        keep(self, told._replace(picture=None))

    return _replaced(Bookmark, "keep", careless)


# Nothing but what listeners are told of.
_DENSE: Final[Sequence[Cast]] = ((("perform", perform), ("attend", attend), ("attend", attend), ("attend", attend)),)
# The end comes most often behind what was just made durable.
_DEADLY: Final[Weather] = {name: {Action.CRASH_AFTER: 0.004} for name in ("catalog.commit", "writing.commit")}

LISTENER_WOUNDS: Final = (
    Wound(note_before_it_is_told, ("were never told of",), weather=_DEADLY, casts=_DENSE),
    Wound(never_move_the_bookmark, ("were told",), casts=_DENSE),
    Wound(forget_what_is_known_of_the_group, ("were told", "were never told of"), casts=_DENSE),
)
