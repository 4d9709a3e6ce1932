"""All endpoints."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from anabranch.server.http.append import append
from anabranch.server.http.endpoints import Endpoint
from anabranch.server.http.follow import follow
from anabranch.server.http.front import HttpCall
from anabranch.server.http.read import read

EVENTS: Final = "/v1/streams/{scope}/{name}/events"


async def read_or_follow(call: HttpCall) -> Response:
    """`?follow` goes on where a read would end."""
    return await (follow(call) if call.flag("follow") else read(call))


ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    Endpoint("POST", EVENTS, append, "write", "stream", "append", "Append events"),
    Endpoint("GET", EVENTS, read_or_follow, "read", "stream", "read", "Read or follow events"),
)
