"""The table of endpoints: what the app serves, what OpenAPI describes, and what tests of access go through."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from anabranch.errors import InvalidArgument
from anabranch.security.guard import Operation
from anabranch.server.http.access import header_token
from anabranch.server.http.front import HttpCall
from anabranch.server.http.problem import problem_response
from anabranch.wire.verbs import summary_of

Handler = Callable[[HttpCall], Awaitable[Response]]
SocketHandler = Callable[[HttpCall], Awaitable[ASGIApp]]
"""Makes what serves a WebSocket whose caller is known and allowed. It has not been accepted yet, so what this raises is
answered as HTTP."""
_OWN_API: Final = "/v1/"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One method of one path. An `operation` is checked on the stream that the path names before the handler runs;
    without one, the handler's verb has its own checks. A `public` page tells nothing of the store, and is for everybody.

    `answers`, `parameters` and `body` are objects of OpenAPI 3.1. There the endpoint has the `name` and the `summary`: by
    default the handler's name, and the first sentence of its documentation. `headers` are sent with each answer. `token_of`
    finds the caller's token, and `refusal` makes the answer of an error. `socket` serves WebSockets of a GET."""

    method: str
    path: str
    handler: Handler
    answers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    operation: Operation | None = None
    name: str = ""
    summary: str = ""
    parameters: tuple[Mapping[str, Any], ...] = ()
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    public: bool = False
    token_of: Callable[[Scope], str | None] = header_token
    refusal: Callable[[BaseException], Response] = problem_response
    socket: SocketHandler | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.handler.__name__)
        object.__setattr__(self, "summary", self.summary or summary_of(self.handler))

    def check_query(self, given: Iterable[str]) -> None:
        """Raise InvalidArgument for a parameter of the query string that the endpoint hasn't. Other systems' APIs, whose clients
        send what this server does not know, are not checked."""
        if not self.path.startswith(_OWN_API):
            return
        known = [each["name"] for each in self.parameters if each["in"] == "query"]
        if unknown := next((name for name in given if name not in known), None):
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InvalidArgument(f"{self.method} {self.path} has no parameter '{unknown:.100}': {takes}")
