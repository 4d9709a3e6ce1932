"""What a front end of a broker asks before it serves a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Operation = Literal["read", "write", "create", "manage", "admin"]
"""`read`: events and descriptions. `write`: append events, transactions, reader groups' positions. `create`: new streams
and scopes. `manage`: change or delete streams and scopes. `admin`: the store itself, and places of the server."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. `name` is what audit and limits go by; `token` the id of the token it came with, if any."""

    name: str
    roles: tuple[str, ...] = ()
    token: str | None = None


class Guard(Protocol):
    """Authentication, authorization, limits and audit of a broker. Thread-safe; no call waits for the network."""

    def authenticate(self, *, token: str | None, certificate: str | None, peer: str) -> Principal:
        """Who calls: `token` as sent (without `Bearer`), `certificate` the name in a verified client certificate, `peer`
        the address. Raises Unauthenticated."""
        ...

    def authorize(self, principal: Principal, operation: Operation, resource: str | None) -> None:
        """Check the operation on a resource: `scope/stream` by its present name (aliases and former names resolved),
        `scope/` for a scope, None for the store. Raises PermissionDenied."""
        ...

    def admit(self, principal: Principal, *, calls: int = 1, bytes_: int = 0) -> None:
        """Count a call and its bytes against the principal's limits and the broker's. Raises RateLimited."""
        ...

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        """Note a management call, or a refusal, in the audit stream. Never raises, and does not wait."""
        ...


class OpenGuard:
    """Everybody may do everything: for a broker on loopback, or with `--insecure`."""

    def authenticate(self, *, token: str | None, certificate: str | None, peer: str) -> Principal:
        return Principal("anonymous", ("admin",))

    def authorize(self, principal: Principal, operation: Operation, resource: str | None) -> None:
        return None

    def admit(self, principal: Principal, *, calls: int = 1, bytes_: int = 0) -> None:
        return None

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        return None
