"""What the calls of one front end share."""

from __future__ import annotations

import pytest

import anabranch as ab
from anabranch.errors import StreamNotFound
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.events.front import EventFront


async def test_a_front_may_be_closed_again() -> None:
    with ab.connect("memory://") as store:
        front = EventFront(Broker(store, OpenGuard()))
        assert await front.run(lambda: 1) == 1
        await front.close()
        await front.close()


async def test_the_right_of_a_follower_is_checked_by_the_present_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with ab.connect("memory://") as store:
        for scope in ("open", "secret"):
            store.scopes.create(scope)
        info = store.streams.create("open/a")
        store.streams.rename("open/a", "secret/a")
        store.streams.create("open/a")
        guard = OpenGuard()
        front = EventFront(Broker(store, guard))
        asked = []
        monkeypatch.setattr(guard, "authorize", lambda *call, **_: asked.append(call[1:]))
        await front.check_follows(Principal("anonymous", ()), info.id)
        assert asked == [("read", "secret/a")]
        store.streams.delete("secret/a")
        with pytest.raises(StreamNotFound):
            await front.check_follows(Principal("anonymous", ()), info.id)
        await front.close()
