"""The checks that a front end of a broker makes before it serves a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Protocol

from anabranch.errors import Unauthenticated
from anabranch.model.ids import Micros

Operation = Literal["read", "write", "create", "manage", "admin", "code"]
"""`read`: events and descriptions. `write`: append events, transactions, reader groups' positions. `create`: new streams
and scopes. `manage`: change or delete streams and scopes. `admin`: the store itself, and places of the server. `code`: have
hosts of queries run Python code."""

Holdable = Literal["connections", "followers", "memory"]
"""What a call holds while it lasts: `connections` and `followers` are counted, `memory` is in bytes."""

_BEARER: Final = "bearer "


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls. Roles, audit and limits refer to the `name`. `roles` apply to the whole store without a binding.
    `groups` are further names to which roles may be bound, as `group:NAME`. `token` is the id of the token of the call,
    None without one; `peer` is the caller's address; `expires_at` is when the caller must be authenticated again."""

    name: str
    roles: tuple[str, ...] = ()
    token: str | None = None
    groups: tuple[str, ...] = ()
    peer: str = ""
    expires_at: Micros | None = None


class Holding:
    """An amount that a call holds until it is released; a context manager."""

    __slots__ = ("_release",)

    def __init__(self, release: Callable[[], None] | None = None) -> None:
        self._release = release

    def release(self) -> None:
        """Release the amount. A second call does nothing."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self) -> Holding:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Guard(Protocol):
    """Authentication, authorization, limits and audit of a broker. Thread-safe; no call waits for the network or the
    catalog, so all may be made from an event loop.

    The guard notes its own refusals (what `authenticate`, `authorize`, `authorize_place`, `admit` and `hold` raise) in
    the audit stream; `record` is for management calls."""

    def authenticate(self, *, token: str | None, certificate: str | None, peer: str) -> Principal:
        """Who calls: `token` as sent (without `Bearer`), `certificate` the name in a verified client certificate, `peer`
        the address. Raises Unauthenticated, RateLimited."""
        ...

    def authorize(self, principal: Principal, operation: Operation, resource: str | None, *, verb: str = "") -> None:
        """Check the operation on a resource: `scope/stream` by its present name (aliases and former names resolved),
        `scope/` for a scope, None for the store. `verb` is for the audit.

        Long calls, such as a follower or a group reader, check again every few seconds. Raises PermissionDenied, and
        Unauthenticated once the token has expired or was revoked."""
        ...

    def allows(self, principal: Principal, operation: Operation, resource: str | None) -> bool:
        """Whether `authorize` would pass; for lists, which show only what the caller may read. Never raises, and notes
        nothing."""
        ...

    def authorize_place(self, principal: Principal, place: str, *, verb: str = "") -> None:
        """Check a folder or address that the server itself would open: for admins, and only below the places that the
        broker's configuration lists. Raises PermissionDenied."""
        ...

    def admit(self, principal: Principal, *, calls: int = 1, bytes_: int = 0) -> None:
        """Count a call and its bytes against the principal's limits and the broker's. Bytes whose number is known only
        later are counted with `calls=0`. Raises RateLimited, and then counts nothing."""
        ...

    def hold(self, principal: Principal, what: Holdable, amount: int = 1) -> Holding:
        """Count an amount against the limits until it is released. Raises RateLimited, and then holds nothing."""
        ...

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        """Note a management call, and how it ended, in the audit stream. Never raises, and does not wait. Errors that
        the guard raised itself are noted already."""
        ...

    def close(self) -> None:
        """Write pending notes to the audit stream, and end background work. A second call does nothing."""
        ...


class OpenGuard:
    """Everybody may do everything: for a broker on loopback, or with `--insecure`."""

    def authenticate(self, *, token: str | None, certificate: str | None, peer: str) -> Principal:
        return Principal("anonymous", ("admin",), peer=peer)

    def authorize(self, principal: Principal, operation: Operation, resource: str | None, *, verb: str = "") -> None:
        return None

    def allows(self, principal: Principal, operation: Operation, resource: str | None) -> bool:
        return True

    def authorize_place(self, principal: Principal, place: str, *, verb: str = "") -> None:
        return None

    def admit(self, principal: Principal, *, calls: int = 1, bytes_: int = 0) -> None:
        return None

    def hold(self, principal: Principal, what: Holdable, amount: int = 1) -> Holding:
        return Holding()

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        return None

    def close(self) -> None:
        return None


def bearer_token(header: str) -> str:
    """The token of `Bearer TOKEN`. Raises Unauthenticated for any other scheme."""
    if header[: len(_BEARER)].lower() != _BEARER:
        raise Unauthenticated("expected Authorization: Bearer TOKEN")
    return header[len(_BEARER) :].strip()
