"""Errors of the store in Arrow Flight: as a status, a message, and JSON in `extra_info`."""

from __future__ import annotations

import json
from typing import Final

import pyarrow as pa
from pyarrow import flight

from anabranch import errors
from anabranch.core.json_text import parse_json
from anabranch.errors import AnabranchError, StoreUnavailable
from anabranch.wire.errors import compact, error_for_headers, error_from_json, error_to_json, status_of

_CLASSES: Final = {
    "UNAUTHENTICATED": flight.FlightUnauthenticatedError,
    "PERMISSION_DENIED": flight.FlightUnauthorizedError,
    "UNAVAILABLE": flight.FlightUnavailableError,
}


def error_text(error: BaseException) -> str:
    """The error as JSON text."""
    return json.dumps(error_to_json(error), ensure_ascii=False, separators=(",", ":"))


def to_flight(error: BaseException) -> flight.FlightError:
    """The error as Flight sends it, in headers: see `error_for_headers`."""
    found = error_for_headers(error)
    kind = _CLASSES.get(status_of(error).grpc, flight.FlightServerError)
    return kind(found["message"], extra_info=compact(found))


def error_of_text(text: str | bytes) -> Exception:
    """The error that this JSON text describes."""
    try:
        return error_from_json(parse_json(text))
    except ValueError as exc:
        raise errors.InvalidArgument(f"expected an error as JSON: {exc}") from exc


def from_flight(error: Exception) -> Exception:
    """What the broker raised; StoreUnavailable where the connection failed; any other error as it is."""
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
    return error
