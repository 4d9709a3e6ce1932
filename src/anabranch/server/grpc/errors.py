"""Errors as gRPC statuses, by the one table of errors."""

from __future__ import annotations

from typing import Any, Final

import grpc

from anabranch.errors import AnabranchError
from anabranch.runtime.log_events import GRPC_FAILED
from anabranch.wire.errors import compact, error_for_headers, status_of
from anabranch.wire.v1 import store_pb2 as v1

ERROR: Final = "anabranch-error-bin"
"""The trailing metadata that holds an `anabranch.v1.Error`."""


class GrpcRefusal(Exception):
    """A refusal that only gRPC has."""

    def __init__(self, status: grpc.StatusCode, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def draining() -> GrpcRefusal:
    """The broker is about to end: the caller continues on another one."""
    return GrpcRefusal(grpc.StatusCode.UNAVAILABLE, "draining", "the broker is stopping; continue on another one")


def outcome_of(error: BaseException) -> str:
    """The outcome of a call for the counters."""
    if isinstance(error, GrpcRefusal):
        return "failed" if error.status is grpc.StatusCode.UNAVAILABLE else "refused"
    return "failed" if status_of(error).http >= 500 else "refused"


async def abort(context: Any, error: Exception) -> None:
    """End the call with the error: its status, its message, and an `Error` in the trailing metadata. An unexpected error
    is logged; its text is not sent."""
    if isinstance(error, GrpcRefusal):
        status, found = error.status, v1.Error(code=error.code, message=str(error))
    else:
        if not isinstance(error, AnabranchError | TimeoutError):
            GRPC_FAILED(error=error, traceback=error)
        sent = error_for_headers(error)
        status = grpc.StatusCode[status_of(error).grpc]
        found = v1.Error(code=sent["code"], message=sent["message"], fields=compact(sent["fields"]))
    await context.abort(status, found.message, ((ERROR, found.SerializeToString()),))
