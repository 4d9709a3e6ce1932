"""The port for randomness: ids and random numbers."""

from __future__ import annotations

import secrets
from typing import Protocol


class Ids(Protocol):
    """A source of unguessable numbers."""

    def bits(self, count: int) -> int:
        """A random integer below `2**count`."""


class SystemIds:
    """The operating system's randomness."""

    def bits(self, count: int) -> int:
        return secrets.randbits(count)


def token(ids: Ids) -> str:
    """A fresh 96-bit id as 24 hex digits: for writers, requests, blobs and leases."""
    return f"{ids.bits(96):024x}"
