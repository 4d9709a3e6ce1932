"""Questions that a session asks its caller in the middle of a request."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.errors import Closed
from anabranch.runtime.ports import Runtime
from anabranch.server.grpc.session import GrpcSession
from anabranch.wire.v1 import store_pb2 as v1
from tests.waiting import PATIENCE_S


async def test_a_question_ends_with_its_session_however_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session may end as soon as the question is sent, before the thread that asks goes on."""
    sent, ended = asyncio.Event(), threading.Event()

    async def send(message: Any) -> None:
        sent.set()

    call: Any = SimpleNamespace(front=SimpleNamespace(store=SimpleNamespace(runtime=Runtime())), send=send)
    session = GrpcSession(call, v1.ReadGroupRequest, silent_s=None)
    outcome: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    schedule = asyncio.run_coroutine_threadsafe

    def slow(*arguments: Any) -> Any:
        scheduled = schedule(*arguments)
        assert ended.wait(PATIENCE_S)
        return scheduled

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", slow)

    def ask(loop: asyncio.AbstractEventLoop) -> None:
        try:
            session.ask(v1.ReadGroupResponse(), "checkpoint_taken")
        except Closed as exc:
            loop.call_soon_threadsafe(outcome.set_result, exc)

    threading.Thread(target=ask, args=(asyncio.get_running_loop(),), daemon=True).start()
    async with asyncio.timeout(PATIENCE_S):
        await sent.wait()
        session.give_up()
        ended.set()
        assert isinstance(await outcome, Closed)
