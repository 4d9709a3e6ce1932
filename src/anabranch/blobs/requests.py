"""Asking an object store: what its answers mean, and how often to ask again."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

from anabranch import limits
from anabranch.runtime.ports import Runtime

_T = TypeVar("_T")

FAILURES: Final = (BaseError, OSError, ValueError)  # all that the library raises for a request

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_BUCKETS: Final = ("NoSuchBucket", "ContainerNotFound")
_PASSING: Final = (408, 429, 500, 502, 503, 504)
_PASSING_CODES: Final = ("RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted")
_FULL: Final = 507


class Meaning(Enum):
    """What an answer other than success says."""

    PASSING = "asking again may help"
    TAKEN = "the key is taken, or somebody is just writing it"
    MISSING = "there is no such object"
    NO_BUCKET = "there is no such bucket"
    FORBIDDEN = "the credentials do not allow it"
    RANGE = "the range lies beyond the end"
    FULL = "there is no room"
    UNTRUSTED = "the server's certificate is not trusted"
    REFUSED = "asking again can't help"


@dataclass(slots=True)
class RequestFailed(Exception):
    """A request that failed. `said` is safe to show: a status and a code, never an address or header."""

    meaning: Meaning
    said: str

    def __str__(self) -> str:
        return self.said


def explain(exc: Exception) -> RequestFailed:
    """What an error of the object store library means. Its own text may hold signed addresses, so it is not kept."""
    text = str(exc)
    found, code = _STATUS.search(text), _CODE.search(text)
    status = int(found[1]) if found else 0
    named = code[1] if code else ""
    return RequestFailed(_meaning(exc, text, status, named), _said(text, status, named))


def _meaning(exc: Exception, text: str, status: int, code: str) -> Meaning:
    if isinstance(exc, AlreadyExistsError):
        return Meaning.TAKEN
    if code in _BUCKETS or "specified bucket does not exist" in text:
        return Meaning.NO_BUCKET
    if isinstance(exc, FileNotFoundError):
        return Meaning.MISSING
    if isinstance(exc, (PermissionDeniedError, UnauthenticatedError)) or status in (401, 403):
        return Meaning.FORBIDDEN
    if status == _FULL:
        return Meaning.FULL
    if status == 416 or "StartTooLarge" in text:  # a server may answer the end itself with nothing
        return Meaning.RANGE
    if _untrusted(text):
        return Meaning.UNTRUSTED
    if status in _PASSING or code in _PASSING_CODES:
        return Meaning.PASSING
    if not status and "Builder" not in text and not isinstance(exc, ValueError):
        return Meaning.PASSING  # it never answered, or not to the end
    return Meaning.REFUSED


def _untrusted(text: str) -> bool:
    return "InvalidCertificate" in text or "certificate" in text


def _said(text: str, status: int, code: str) -> str:
    if status:
        return f"it answered {status} {code}".rstrip()
    if _untrusted(text):
        return "its certificate is not trusted; ca=FILE in the URL names a private authority"
    if "Builder" in text:
        return "the request can't be made; for an http:// address the URL must say allow_http=true"
    if "Timeout" in text or "TimedOut" in text:
        return "it did not answer in time"
    return "it can't be reached, or broke off"


class Patience:
    """How often one call asks: until its deadline, after pauses that grow and differ from client to client."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._until = runtime.clock.monotonic() + runtime.settings.blob_deadline_s
        self._asked = 0

    def again(self) -> bool:
        """Wait, then True; False at once where the deadline would be passed."""
        chance = self._runtime.ids.bits(16) / (1 << 16)
        pause = min(limits.BLOB_PAUSE_S_MAX, limits.BLOB_PAUSE_S_MIN * 2.0**self._asked) * (0.5 + chance / 2)
        if self._runtime.clock.monotonic() + pause >= self._until:
            return False
        self._asked += 1
        self._runtime.tasks.sleep(pause)
        return True


def ask(runtime: Runtime, request: Callable[[], _T]) -> _T:
    """The answer to a request that may be repeated. Raises RequestFailed once asking again can't help or the deadline
    is near."""
    patience = Patience(runtime)
    while True:
        failed = None
        try:
            return request()
        except FAILURES as exc:
            failed = explain(exc)
        if failed.meaning is not Meaning.PASSING or not patience.again():
            raise failed
