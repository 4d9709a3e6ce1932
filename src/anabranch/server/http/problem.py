"""Errors as HTTP answers: application/problem+json (RFC 9457), by the one table of errors."""

from __future__ import annotations

import math
from http.client import responses
from typing import Any, Final

import msgspec
from starlette.responses import Response

from anabranch.errors import AnabranchError, RateLimited, StoreUnavailable, Unauthenticated
from anabranch.runtime.log_events import REQUEST_FAILED
from anabranch.wire.errors import error_to_json, status_of

_RETRY_S: Final = 1

PROBLEM: Final = "application/problem+json"


def problem_of(error: BaseException) -> dict[str, Any]:
    """The problem: `status`, `title`, `code` (which never changes for a kind of error), `detail`, and the error's own
    fields under `fields`."""
    if isinstance(error, HttpRefusal):
        status, found = error.status, {"code": error.code, "message": str(error), "fields": {}}
    else:
        status, found = status_of(error).http, error_to_json(error)
    return {
        "type": "about:blank",
        "title": responses.get(status, "Refused"),
        "status": status,
        "detail": found["message"],
        "code": found["code"],
        "fields": found["fields"],
    }


def problem_response(error: BaseException) -> Response:
    """The answer to a request that failed. An unexpected error is logged; its text is not sent."""
    if not isinstance(error, (AnabranchError, TimeoutError, HttpRefusal)):
        REQUEST_FAILED(error=error, traceback=error)
    problem = problem_of(error)
    headers = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    elif isinstance(error, RateLimited):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    elif isinstance(error, StoreUnavailable):
        headers["Retry-After"] = str(_RETRY_S)
    elif isinstance(error, HttpRefusal):
        headers.update(error.headers)
    return Response(msgspec.json.encode(problem), problem["status"], headers, PROBLEM)


def draining() -> HttpRefusal:
    """The broker is about to end: the caller continues on another one."""
    return HttpRefusal(503, "draining", "the broker is stopping", Retry_After="1", Connection="close")


def with_body(response: Response, value: object, status: int | None = None) -> Response:
    """The answer to a request that failed, with another body, in JSON, and perhaps another status."""
    headers = {name: each for name, each in response.headers.items() if name not in ("content-type", "content-length")}
    return Response(msgspec.json.encode(value), status or response.status_code, headers, "application/json")


class HttpRefusal(Exception):
    """A refusal that only HTTP has: a method, a media type, a length, a range."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
