"""Calls whose caller goes while something is opened for them: it is closed."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import anabranch as ab
from anabranch.model.cut import TAIL
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server import calls
from anabranch.server.abandoned import open_in_thread
from anabranch.server.answers import _Reported
from anabranch.server.broker import Broker
from anabranch.server.events.front import EventFront
from anabranch.server.flight.read import read
from anabranch.store import Store
from anabranch.wire.v1 import anabranch_pb2 as v1
from tests.waiting import PATIENCE_S, until


@pytest.fixture
def store() -> Iterator[Store]:
    with ab.connect("memory://") as made:
        made.scopes.create("s")
        made.streams.create("s/a")
        with made.writer("s/a") as writer:
            writer.write(b"x")
        yield made


@pytest.fixture
async def front(store: Store) -> AsyncIterator[EventFront]:
    made = EventFront(Broker(store, OpenGuard()))
    yield made
    await made.close()


class Held:
    """Opens something once it is let go."""

    def __init__(self, opening: Callable[..., Any]) -> None:
        self._opening = opening
        self.called, self.let_go = threading.Event(), threading.Event()

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.called.set()
        assert self.let_go.wait(PATIENCE_S)
        return self._opening(*args, **named)

    async def cancel(self, call: Any) -> None:
        """Begin the call, and cancel it while it opens."""
        task = asyncio.ensure_future(call)
        await asyncio.to_thread(until, self.called.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        self.let_go.set()


async def closed(store: Store) -> None:
    await asyncio.to_thread(until, lambda: not store._open)


async def test_what_is_opened_for_a_cancelled_task_is_closed(store: Store, front: EventFront) -> None:
    held = Held(store.reader)
    await held.cancel(open_in_thread(front.threads, lambda: held("s/a")))
    await closed(store)
    assert not (await open_in_thread(front.threads, lambda: store.reader("s/a"))).closed


@pytest.mark.parametrize("which", ["tail", "history"])
async def test_a_follower_that_goes_while_its_reader_is_opened_leaves_none(
    store: Store, front: EventFront, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    own, info = store.reader, store.streams.get("s/a")
    held = Held(own)

    def reader(stream: Any, **options: Any) -> Any:
        wanted = options.get("follow") if which == "tail" else options.get("end") not in (None, TAIL)
        return (held if wanted else own)(stream, **options)

    monkeypatch.setattr(store, "reader", reader)

    async def follow() -> None:
        follower = await front.tails.follow(info, "head")
        try:
            async for _ in follower.batches():
                pass
        finally:
            follower.close()

    await held.cancel(follow())
    await front.close()
    await closed(store)


async def test_a_writer_that_is_opened_for_a_cancelled_append_is_kept_for_the_next_one(
    store: Store, front: EventFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, held = store.streams.get("s/a"), Held(store.writer)
    monkeypatch.setattr(store, "writer", held)
    await held.cancel(front.writers.get(info))
    await front.writers.get(info)
    assert len(store._open) == 1
    await front.close()
    await closed(store)


async def test_a_caller_that_comes_once_a_writer_is_open_and_before_it_is_kept_uses_it(
    store: Store, front: EventFront
) -> None:
    info, writer = store.streams.get("s/a"), store.writer("s/a")
    opening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    opening.set_result(writer)  # whose callbacks run a turn of the loop later
    front.writers._opening[info.id] = opening
    found = await front.writers.get(info)
    front.writers._opened(info, opening)
    assert found.writer is writer and await front.writers.get(info) is found
    assert len(store._open) == 1


def test_a_flight_client_that_goes_before_the_first_batch_leaves_no_reader(store: Store) -> None:
    broker, caller = Broker(store, OpenGuard()), Principal("anonymous", ("admin",))
    _, batches = read(broker, caller, v1.ReadCommand(stream="s/a", follow=True), lambda: False)
    assert len(store._open) == 1
    del batches
    assert not store._open


def test_a_call_with_progress_ends_when_its_client_goes_before_the_first_message(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "run", lambda *_, **__: itertools.count())
    call = _Reported(Broker(store, OpenGuard()), Principal("anonymous", ("admin",)), "streams.list", {})
    messages = call.messages()
    assert not call._ended
    del messages
    until(lambda: call._ended)
