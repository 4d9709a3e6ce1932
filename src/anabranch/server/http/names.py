"""The stream in the path of a request."""

from __future__ import annotations

from starlette.requests import Request

from anabranch.errors import InvalidName


def stream_name(scope: str, name: str) -> str:
    """`scope/name` of two parts of a path. Raises InvalidName."""
    if "/" in scope or "/" in name:
        raise InvalidName(f"'{scope}/{name}' is not a stream name: expected a scope and a name without '/'")
    return f"{scope}/{name}"


def stream_of(request: Request) -> str:
    """The stream of the path of a request. In the path of a Durable Stream, everything after the scope is the name,
    with `.` for `/`. Raises InvalidName."""
    scope, name = request.path_params["scope"], request.path_params["name"]
    return stream_name(scope, name.replace("/", ".") if request.scope["path"].startswith("/streams/") else name)
