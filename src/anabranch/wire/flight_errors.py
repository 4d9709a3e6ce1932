"""Errors of the store in Arrow Flight: as a status, a message, and JSON in `extra_info`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from anabranch import errors
from anabranch.core.json_text import parse_json
from anabranch.errors import AnabranchError, StoreUnavailable
from anabranch.wire.errors import error_from_json, error_to_json, status_of

_MESSAGE_CHARS_MAX: Final = 500  # the message is sent twice, and gRPC takes 8 KiB of headers, or more
_EXTRA_BYTES_MAX: Final = 4096

_CLASSES: Final = {
    "UNAUTHENTICATED": flight.FlightUnauthenticatedError,
    "PERMISSION_DENIED": flight.FlightUnauthorizedError,
    "UNAVAILABLE": flight.FlightUnavailableError,
}


def error_text(error: BaseException) -> str:
    """The error as JSON text."""
    return json.dumps(error_to_json(error), ensure_ascii=False, separators=(",", ":"))


def to_flight(error: BaseException) -> flight.FlightError:
    """The error as Flight sends it: in headers, which gRPC limits, so a long message is cut, and large fields are left
    out."""
    found = error_to_json(error)
    message = str(found.get("message", error))
    if len(message) > _MESSAGE_CHARS_MAX:
        message = f"{message[:_MESSAGE_CHARS_MAX]} …"
    sent = {**found, "message": message}
    extra = _compact(sent)
    if len(extra) > _EXTRA_BYTES_MAX:
        extra = _compact({**sent, "fields": {}})
    kind = _CLASSES.get(status_of(error).grpc, flight.FlightServerError)
    return kind(message, extra_info=extra)


def _compact(found: Mapping[str, Any]) -> bytes:
    # ASCII: in a header, gRPC writes any other byte as three.
    return json.dumps(found, separators=(",", ":")).encode()


def error_of_text(text: str | bytes) -> Exception:
    """The error that this JSON text describes."""
    try:
        return error_from_json(parse_json(text))
    except ValueError as exc:
        raise errors.InvalidArgument(f"expected an error as JSON: {exc}") from exc


def from_flight(error: BaseException) -> Exception:
    """What the broker raised; StoreUnavailable where the connection failed."""
    extra = getattr(error, "extra_info", None)
    if extra:
        return error_of_text(bytes(extra))
    if isinstance(error, AnabranchError):
        return error
    message = str(error).partition(". gRPC client debug context")[0]
    if isinstance(error, flight.FlightUnauthenticatedError):
        return errors.Unauthenticated(message)
    if isinstance(error, flight.FlightUnauthorizedError):
        return errors.PermissionDenied(message)
    if isinstance(error, (flight.FlightError, pa.ArrowException, OSError)):
        return StoreUnavailable(message)
    raise error
