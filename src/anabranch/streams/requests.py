"""Requests: a change of the catalog that is asked for again returns its first result."""

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
    """Return a request id if it can be one. Raises InvalidArgument."""
    if request is None:
        return None
    # Not the empty text: more likely a variable that was never set, and each call with it would be taken for the first.
    if not isinstance(request, str) or not 0 < len(request) <= limits.REQUEST_CHARS_MAX or not request.isprintable():
        raise InvalidArgument(
            f"a request id is text of 1 to {limits.REQUEST_CHARS_MAX} characters that can be printed, not {request!r:.60}"
        )
    return request


def page_of(request: str | None, number: int) -> str | None:
    """The id of transaction `number`, from 0 on, of a change that takes several: of the first the caller's own. No caller can
    have given one of the others, since they hold what can't be printed."""
    return request if request is None or number == 0 else f"{request}\x1f{number}"


def once(txn: Writing, request: str | None, operation: str, now: Micros, act: Callable[[], Result]) -> Result:
    """Act, and record the result under the request id in the same transaction; or return what was recorded.

    `operation` names the verb and its arguments. Raises RequestMismatch where the id was used for something else.
    """
    if request is None:
        return act()
    known = txn.request(request)
    if known is not None:
        if known[0] != operation:
            raise RequestMismatch(f"request '{request}' was '{known[0]}'; it can't be '{operation}' as well")
        result: Result = json.loads(known[1])
        return result
    result = act()
    txn.record_request(request, operation, json.dumps(result), now=now)
    return result
