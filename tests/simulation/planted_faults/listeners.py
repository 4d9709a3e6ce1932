"""Planted faults of named listeners; see `planted_faults.core`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Final

from anabranch.catalog.state.listener import LastDelivered
from anabranch.notifications.bookmark import ListenerBookmark
from anabranch.notifications.kinds import Notification
from anabranch.notifications.subscription import Subscription
from anabranch.testing.faults import Action
from tests.simulation.clients import ClientMix
from tests.simulation.clients.listeners import attend, perform
from tests.simulation.planted_faults.core import PlantedFault, _replaced
from tests.simulation.simulation import FaultRates

__all__ = ["LISTENER_FAULTS"]


@contextmanager
def note_before_it_is_told() -> Iterator[None]:
    """The bookmark is moved before the listener is called."""
    deliver, note = Subscription._deliver, Subscription._save_bookmark

    def faulty(self: Subscription, each: Notification) -> None:
        note(self, each)
        deliver(self, each)

    with (
        _replaced(Subscription, "_deliver", faulty),
        _replaced(Subscription, "_save_bookmark", lambda self, each: None),
    ):
        yield


def never_move_the_bookmark() -> AbstractContextManager[None]:
    """The bookmark stays where the listener was when it was opened."""
    keep = ListenerBookmark.save

    def faulty(self: ListenerBookmark, told: LastDelivered) -> None:
        if not vars(self).setdefault("_kept", False):
            keep(self, told)
            vars(self)["_kept"] = True

    return _replaced(ListenerBookmark, "save", faulty)


def forget_what_is_known_of_the_group() -> AbstractContextManager[None]:
    """A group's listener that resumes gets the present state again, and not what happened meanwhile."""
    keep = ListenerBookmark.save

    def faulty(self: ListenerBookmark, told: LastDelivered) -> None:
        keep(self, replace(told, group=None))

    return _replaced(ListenerBookmark, "save", faulty)


# Only clients that cause or receive notifications.
_DENSE: Final[Sequence[ClientMix]] = (
    (("perform", perform), ("attend", attend), ("attend", attend), ("attend", attend)),
)
# Crashes mostly happen right after something was made durable.
_DEADLY: Final[FaultRates] = {name: {Action.CRASH_AFTER: 0.004} for name in ("catalog.commit", "writing.commit")}

LISTENER_FAULTS: Final = (
    PlantedFault(note_before_it_is_told, ("were never told of",), fault_rates=_DEADLY, mixes=_DENSE),
    PlantedFault(never_move_the_bookmark, ("were told",), mixes=_DENSE),
    PlantedFault(forget_what_is_known_of_the_group, ("were told", "were never told of"), mixes=_DENSE),
)
