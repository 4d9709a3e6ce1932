"""Callers who answer a batch before the broker's own call that wrote it has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import anabranch as ab
from anabranch.groups.membership import Opening
from anabranch.security.guard import OpenGuard, Principal
from anabranch.server.broker import Broker
from anabranch.server.grpc.group_reader import _GroupCall
from anabranch.server.sessions.group_reader import HeldGroupReader
from anabranch.wire.v1 import store_pb2 as v1

_WRITTEN_S = 0.2  # from when the caller has a message until the broker knows that it is written


class _QuickCaller:
    """A session whose caller sends its next request while the answer to the last one is still being written."""

    def __init__(self, store: ab.Store, requests: list[tuple[str, Any]]) -> None:
        self.call = SimpleNamespace(front=SimpleNamespace(store=store, draining=False, run=self.run))
        self.token, self.owing, self.blocked = "t", 0, False
        self.answers: list[str] = []
        self._requests = requests
        self._received: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()

    async def next(self) -> tuple[str, Any] | None:
        return await self._received.get()

    async def run(self, work: Callable[[], Any]) -> Any:
        return await asyncio.to_thread(work)

    async def send(self, *messages: v1.ReadGroupResponse | bytes) -> None:
        message = messages[-1]
        answer = v1.ReadGroupResponse.FromString(message) if isinstance(message, bytes) else message
        self.answers.append(str(answer.WhichOneof("answer")))
        self._received.put_nowait(self._requests.pop(0) if self._requests else None)
        await asyncio.sleep(_WRITTEN_S)

    def interrupted(self) -> bool:
        return False

    def give_up(self) -> None:
        pass


@pytest.fixture
def store() -> Iterator[ab.Store]:
    with ab.connect("memory://") as made:
        made.scopes.create("s")
        made.streams.create("s/in")
        with made.writer("s/in") as writer:
            for number in range(4):
                writer.write(b"%d" % number)
        made.groups.open("s/g", streams="s/in", end="tail")
        yield made


@pytest.mark.parametrize(
    ("delivery", "requests"),
    [
        ("exactly_once", [("next", v1.NextGroupBatch()), ("commit", v1.CommitGroup())] * 2),
        ("at_least_once", [("next", v1.NextGroupBatch())] * 2),
    ],
)
async def test_a_request_may_follow_an_answer_at_once(
    store: ab.Store, delivery: Any, requests: list[tuple[str, Any]]
) -> None:
    held = HeldGroupReader(
        Broker(store, OpenGuard()),
        Principal("a"),
        "s/g",
        "r",
        Opening("token", 1),
        delivery=delivery,
        batch_rows=2,
        on_checkpoint=lambda name: None,
    )
    session: Any = _QuickCaller(store, list(requests))
    served = _GroupCall(session, held, v1.OpenGroupReader(group="s/g", reader="r", delivery=delivery))
    await served.serve()
    answered = {"next": "batch", "commit": "committed"}
    assert session.answers == ["opened", *(answered[name] for name, _ in requests)]
    served.abandon()
