"""What the calls of one front end share."""

from __future__ import annotations

import anabranch as ab
from anabranch.security.guard import OpenGuard
from anabranch.server.broker import Broker
from anabranch.server.events.front import EventFront


async def test_a_front_may_be_closed_again() -> None:
    with ab.connect("memory://") as store:
        front = EventFront(Broker(store, OpenGuard()))
        assert await front.run(lambda: 1) == 1
        await front.close()
        await front.close()
