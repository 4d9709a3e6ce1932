"""`GET /v1/streams/{scope}/{name}/events?follow`: events as they come, as NDJSON, as server-sent events or as an Arrow IPC
stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from anabranch.errors import AnabranchError, Closed
from anabranch.server.events.arrow_encoder import END
from anabranch.server.http.delivery import Delivery, begin, follow_request
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import draining, problem_response
from anabranch.server.http.read import TYPES, follows, read

_KEEP_ALIVE: Final = b": keep-alive\n\n"
_SEALED: Final = {"sse": b"event: sealed\ndata: {}\n\n", "arrow": END}


async def read_or_follow(call: HttpCall) -> Response:
    """Read events, or follow the stream. With `?follow`, keep waiting for more where a read would end: until the caller goes
    or the stream is sealed."""
    if not follows(call):
        return await read(call)
    return FollowResponse(await begin(call, follow_request(call), call.info))


class FollowResponse(Response):
    """The answer to one follower. It ends when the caller goes, when the stream is sealed and read, with an error, when
    the broker drains, and when the server closes the connection of a caller who read nothing for too long.

    In each form the last part says why it ends, and where to continue."""

    def __init__(self, delivery: Delivery) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        if (position := delivery.position) is not None:
            headers["Anabranch-From"] = str(position)
        super().__init__(None, 200, headers, TYPES[delivery.kind])
        del self.headers["content-length"]
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(self._serve(scope, receive, send), receive, "http.disconnect")
        finally:
            self._delivery.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = self._delivery.kind
        if kind == "arrow":  # which has no place for a problem before the stream's columns are known
            try:
                await self._delivery.ready()
            except AnabranchError as exc:
                await problem_response(draining() if isinstance(exc, Closed) else exc)(scope, receive, send)
                return
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        try:
            async for parts in self._delivery.parts():
                for part in self._sign_of_life() if parts is None else parts:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            last = _SEALED.get(kind, b"")
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            last = self._problem(exc)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    def _sign_of_life(self) -> list[bytes]:
        kind = self._delivery.kind
        return [_KEEP_ALIVE] if kind == "sse" else [self._delivery.empty_batch()] if kind == "arrow" else []

    def _problem(self, error: Exception) -> bytes:
        problem = self._delivery.problem(error)
        if self._delivery.kind == "arrow":
            return self._delivery.empty_batch(problem) + END
        text = msgspec.json.encode(problem)
        return b"event: problem\ndata: %b\n\n" % text if self._delivery.kind == "sse" else b'{"_problem":%b}\n' % text


async def run_while_connected(work: Coroutine[Any, Any, None], receive: Receive, gone: str) -> None:
    """Do the work until it is done, or the caller goes, which the message `gone` says. Raises what the work raises."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_until(receive, gone))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done() and (error := working.exception()) is not None:
            raise error
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait((working, leaving))


async def _until(receive: Receive, kind: str) -> None:
    while (await receive())["type"] != kind:
        pass
