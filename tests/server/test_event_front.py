"""What the calls of one front end share."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch import limits
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.events.front import EventFront
from anabranch.server.rights import StreamRight


async def test_a_front_may_be_closed_again() -> None:
    with ab.connect("memory://") as store:
        front = EventFront(Broker(store, OpenGuard()))
        assert await front.run(lambda: 1) == 1
        await front.close()
        await front.close()


async def test_a_right_is_checked_again_once_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    with ab.connect("memory://") as store:
        store.scopes.create("open")
        info = store.streams.create("open/a")
        guard = OpenGuard()
        front = EventFront(Broker(store, guard))
        asked = []
        monkeypatch.setattr(guard, "authorize", lambda *call, **_: asked.append(call[1:]))
        right = StreamRight(store, guard, Principal("anonymous", ()), info.id, "read", verb="follow")
        await front.recheck(right)
        assert asked == []
        monkeypatch.setattr(limits, "RIGHTS_RECHECK_S", -1.0)
        await front.recheck(right)
        assert asked == [("read", "open/a")]
        await front.close()
