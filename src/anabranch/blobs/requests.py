"""Requests to an object store: classification of failures, and retries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from anabranch import limits
from anabranch.runtime.log_events import BLOB_RETRIED
from anabranch.runtime.ports import Runtime
from anabranch.runtime.retry import Retries, RetryPolicy

_T = TypeVar("_T")

FAILURES: Final = (BaseError, OSError, ValueError)  # all that the library raises for a request

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_BUCKETS: Final = ("NoSuchBucket", "ContainerNotFound")
_TRANSIENT_STATUS: Final = (408, 429, 500, 502, 503, 504)
_TRANSIENT_CODES: Final = ("RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted")
_FULL: Final = 507


class FailureKind(Enum):
    """The kinds of failed requests."""

    TRANSIENT = "a retry may succeed"
    TAKEN = "the key already exists, or is being written"
    MISSING = "the object does not exist"
    NO_BUCKET = "the bucket does not exist"
    FORBIDDEN = "the credentials do not allow it"
    RANGE = "the range is beyond the end"
    FULL = "no space is left"
    UNTRUSTED = "the server's certificate is not trusted"
    REFUSED = "a retry would fail again"


@dataclass(slots=True)
class RequestFailed(Exception):
    """A failed request. `message` is safe to show: a status and a code, never an address or header."""

    kind: FailureKind
    message: str

    def __str__(self) -> str:
        return self.message


def explain(exc: Exception) -> RequestFailed:
    """Classify an error of the object store library. Its own text may hold signed URLs, so it is not kept."""
    text = str(exc)
    found, code = _STATUS.search(text), _CODE.search(text)
    status = int(found[1]) if found else 0
    named = code[1] if code else ""
    return RequestFailed(_kind_of(exc, text, status, named), _message(text, status, named))


def _kind_of(exc: Exception, text: str, status: int, code: str) -> FailureKind:
    if isinstance(exc, AlreadyExistsError):
        return FailureKind.TAKEN
    if code in _BUCKETS or "specified bucket does not exist" in text:
        return FailureKind.NO_BUCKET
    if isinstance(exc, FileNotFoundError):
        return FailureKind.MISSING
    if isinstance(exc, (PermissionDeniedError, UnauthenticatedError)) or status in (401, 403):
        return FailureKind.FORBIDDEN
    if status == _FULL:
        return FailureKind.FULL
    if status == 416 or "StartTooLarge" in text:  # a range that starts at the end may also get an empty answer
        return FailureKind.RANGE
    if _untrusted(text):
        return FailureKind.UNTRUSTED
    if status in _TRANSIENT_STATUS or code in _TRANSIENT_CODES:
        return FailureKind.TRANSIENT
    if not status and "Builder" not in text and not isinstance(exc, ValueError):
        return FailureKind.TRANSIENT  # no answer, or an incomplete one
    return FailureKind.REFUSED


def _untrusted(text: str) -> bool:
    return "InvalidCertificate" in text or "certificate" in text


def _message(text: str, status: int, code: str) -> str:
    if status:
        return f"it answered {status} {code}".rstrip()
    if _untrusted(text):
        return "its certificate is not trusted; set ca=FILE in the URL for a private authority"
    if "Builder" in text:
        return "the request can't be made; an http:// address needs allow_http=true in the URL"
    if "Timeout" in text or "TimedOut" in text:
        return "it did not answer in time"
    return "it can't be reached, or the connection broke"


def request_retries(runtime: Runtime) -> Retries:
    """The retries of one call, up to `settings.blob_deadline_s`."""
    policy = RetryPolicy(pause_s_min=limits.BLOB_PAUSE_S_MIN, pause_s_max=limits.BLOB_PAUSE_S_MAX, event=BLOB_RETRIED)
    return policy.begin(runtime, until=runtime.clock.monotonic() + runtime.settings.blob_deadline_s)


def with_retries(runtime: Runtime, request: Callable[[], _T]) -> _T:
    """Send a request that may be repeated, and return its answer. Raises RequestFailed once a retry can't help or the
    deadline has passed."""
    retries = request_retries(runtime)
    while True:
        failed = None
        try:
            return request()
        except FAILURES as exc:
            failed = explain(exc)
        if failed.kind is not FailureKind.TRANSIENT or not retries.again(failed):
            raise failed
