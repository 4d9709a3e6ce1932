"""Request ids: a repeated change of the catalog returns its first result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from anabranch import limits
from anabranch.catalog.port import Writing
from anabranch.errors import InvalidArgument, RequestMismatch
from anabranch.model.ids import Micros

Result = dict[str, Any]


def check_request(request: str | None) -> str | None:
    """Return the request id if it is valid. Raises InvalidArgument."""
    if request is None:
        return None
    # The empty text is refused: it is probably an unset variable, and all calls with it would count as one request.
    if not isinstance(request, str) or not 0 < len(request) <= limits.REQUEST_CHARS_MAX or not request.isprintable():
        raise InvalidArgument(
            f"expected a request id of 1 to {limits.REQUEST_CHARS_MAX} printable characters, got {request!r:.60}"
        )
    return request


def page_request(request: str | None, number: int) -> str | None:
    """The request id of transaction `number` (from 0) of a change that takes several; the first has the caller's id. The
    others contain an unprintable character, so no caller can pass them."""
    return request if request is None or number == 0 else f"{request}\x1f{number}"


def run_once(txn: Writing, request: str | None, operation: str, now: Micros, change: Callable[[], Result]) -> Result:
    """Run `change` and record its result under the request id in the same transaction; or return the recorded result.

    `operation` names the method and its arguments. Raises RequestMismatch where the id was used for another operation.
    """
    if request is None:
        return change()
    recorded = txn.request(request)
    if recorded is not None:
        if recorded[0] != operation:
            raise RequestMismatch(
                f"request '{request}' was used for '{recorded[0]}'; use another request id for '{operation}'"
            )
        result: Result = json.loads(recorded[1])
        return result
    result = change()
    txn.record_request(request, operation, json.dumps(result), now=now)
    return result
