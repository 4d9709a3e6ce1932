"""The events of a stream as they come, as the messages of a WebSocket.

Each event is a text `{"id": CUT, "data": {…}}`: the same ids and data as server-sent events. The last message is
`{"event": "sealed", "data": {}}` or `{"event": "problem", "data": {…}}`. What the caller sends is not looked at."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from anabranch.errors import AnabranchError, Closed, InvalidArgument
from anabranch.server.http.delivery import Delivery, begin, follow_request
from anabranch.server.http.follow import run_while_connected
from anabranch.server.http.front import HttpCall

_DONE: Final = 1000
_RESTARTING: Final = 1012
_PROBLEM: Final = 4000
"""And the status of the problem: 4409 for one that HTTP answers with 409."""


async def follow_socket(call: HttpCall) -> ASGIApp:
    """Events from a place on, until the caller goes or the stream is sealed."""
    check_socket(call)
    return FollowSocket(await begin(call, follow_request(call, kind="socket"), call.info))


def check_socket(call: HttpCall) -> None:
    """Raise InvalidArgument for another form than the one that a WebSocket has."""
    if call.text("format", "json") != "json":
        raise InvalidArgument("a WebSocket always sends JSON: omit format")


class FollowSocket:
    """Serves one follower; see `FollowResponse`."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(self._serve(send), receive, "websocket.disconnect")
        finally:
            self._delivery.close()

    async def _serve(self, send: Send) -> None:
        position = self._delivery.position
        headers = [] if position is None else [(b"anabranch-from", str(position).encode())]
        await send({"type": "websocket.accept", "headers": headers})
        try:
            async for parts in self._delivery.parts():
                for part in parts or ():  # the server itself sends pings as signs of life
                    await send({"type": "websocket.send", "text": part.decode()})
            last, code = {"event": "sealed", "data": {}}, _DONE
        except asyncio.CancelledError:
            raise
        except Exception as exc:
            if not isinstance(exc, AnabranchError) and isinstance(exc, OSError):
                raise  # the caller has gone
            problem = self._delivery.problem(exc)
            last = {"event": "problem", "data": problem}
            code = _RESTARTING if isinstance(exc, Closed) else _PROBLEM + problem["status"]
        await send({"type": "websocket.send", "text": msgspec.json.encode(last).decode()})
        await send({"type": "websocket.close", "code": code})
