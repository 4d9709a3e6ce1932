"""The front end and the request that the handlers of HTTP get."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from anabranch.errors import InvalidArgument, InvalidName
from anabranch.model.stream import StreamInfo
from anabranch.security.guard import Principal
from anabranch.server.broker import Broker
from anabranch.server.events.front import EventFront


class HttpFront(EventFront):
    """One broker's HTTP front end, for one event loop. Close it before the store."""

    def __init__(self, broker: Broker, description: bytes) -> None:
        """`description` is the OpenAPI document of the API."""
        super().__init__(broker)
        self.description = description


def stream_of(request: Request) -> str:
    """The name of the stream of the path of a request, `scope/name`. In the path of a Durable Stream, everything after the
    scope is the name, with `.` for `/`. Raises InvalidName."""
    scope, name = request.path_params["scope"], request.path_params["name"]
    if request.scope["path"].startswith("/streams/"):
        name = name.replace("/", ".")
    if "/" in scope or "/" in name:
        raise InvalidName(f"'{scope}/{name}' is not a stream name: expected a scope and a name without '/'")
    return f"{scope}/{name}"


@dataclass(frozen=True, slots=True)
class HttpCall:
    """A request that may be served: its caller is known and allowed. `stream` is the stream that the
    path names, None if it names none."""

    front: HttpFront
    request: Request
    principal: Principal
    stream: StreamInfo | None = None

    @property
    def info(self) -> StreamInfo:
        """The stream of the path."""
        assert self.stream is not None, "the path of this endpoint names a stream"
        return self.stream

    def flag(self, name: str) -> bool:
        """A flag in the query string; its presence switches it on: `?follow`, `?follow=true`. Raises InvalidArgument."""
        value = self.request.query_params.get(name)
        if value is None:
            return False
        if value.lower() in ("", "1", "true", "yes"):
            return True
        if value.lower() in ("0", "false", "no"):
            return False
        raise InvalidArgument(f"expected {name} as true or false, got '{value}'")

    def text(self, name: str, default: str | None = None) -> str | None:
        """A parameter of the query."""
        return self.request.query_params.get(name, default)

    def count(self, name: str, default: int | None, *, most: int) -> int | None:
        """A parameter of the query that is a number from 1 to `most`. Raises InvalidArgument."""
        value = self.request.query_params.get(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and len(value) < 19 and 1 <= int(value) <= most):
            raise InvalidArgument(f"expected {name} as a number from 1 to {most:,}, got '{value}'")
        return int(value)
