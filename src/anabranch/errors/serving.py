"""Errors of a broker and of its clients."""

from __future__ import annotations

from anabranch.errors.base import AnabranchError


class Unauthenticated(AnabranchError):
    """The broker does not know who calls: there is no token or certificate, or it is unknown, expired or revoked."""


class PermissionDenied(AnabranchError):
    """The caller is known, but no role allows the operation on this resource. The message does not tell whether the
    resource exists."""


class RateLimited(AnabranchError):
    """A limit of the caller or of the broker is reached; try again after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotRemote(AnabranchError):
    """The call needs the store's catalog and files, so a client of a broker can't make it."""
