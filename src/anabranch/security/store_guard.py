"""The guard of a store: its tokens and roles, limits, and its audit stream."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.errors import AnabranchError, PermissionDenied, RateLimited, Unauthenticated
from anabranch.security.access import AccessCache
from anabranch.security.audit import AUDIT, Audit, AuditKey, reason_of
from anabranch.security.guard import Holdable, Holding, Operation, Principal
from anabranch.security.places import check_place
from anabranch.security.quotas import QuotaKeeper, Quotas
from anabranch.security.rights import refusal
from anabranch.security.tokens import PREFIX, token_digest

if TYPE_CHECKING:
    from anabranch.store.facade import Store

UNKNOWN: Final = Principal("unknown")
_REFUSALS: Final = (Unauthenticated, PermissionDenied, RateLimited)
_TOKEN_CHARS_MAX: Final = 16 * 1024
# The audit stream can't be changed through a broker; a process that opens the store itself can change it.
_AUDIT_RESOURCES: Final = frozenset({str(AUDIT), f"{AUDIT.scope}/"})


class SignedTokens(Protocol):
    """Verifies tokens that an identity provider signed."""

    def principal(self, token: str) -> Principal:
        """Who the token names. Raises Unauthenticated."""
        ...

    def close(self) -> None:
        """End background work."""
        ...


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """`places`: the folders and addresses below which the broker opens archives, backups, attached files and other
    stores for admins. `certificates`: the principals of names in client certificates, if they are not
    `cert:NAME`."""

    quotas: Quotas = field(default_factory=Quotas)
    places: tuple[str, ...] = ()
    certificates: dict[str, str] = field(default_factory=dict)


class StoreGuard:
    """See `Guard`. `signed` verifies JWTs; without it they are refused. Close it before its store."""

    def __init__(
        self, store: Store, settings: GuardSettings | None = None, *, signed: SignedTokens | None = None
    ) -> None:
        self._settings = settings or GuardSettings()
        self._clock = store.runtime.clock
        self._signed = signed
        self._access = AccessCache(store.catalog, store.runtime)
        self._quotas = QuotaKeeper(self._settings.quotas, store.runtime)
        self._audit = Audit(store)

    def authenticate(self, *, token: str | None, certificate: str | None, peer: str) -> Principal:
        """A token takes precedence over a certificate."""
        try:
            if token is not None:
                return self._principal_of(token, peer)
            if certificate is not None:
                name = self._settings.certificates.get(certificate, f"cert:{certificate}")
                return Principal(name, peer=peer)
            raise Unauthenticated("the call has no token: send one as 'Authorization: Bearer …'")
        except _REFUSALS as exc:
            self._note(Principal(UNKNOWN.name, peer=peer), "authenticate", None, exc)
            raise

    def authorize(self, principal: Principal, operation: Operation, resource: str | None, *, verb: str = "") -> None:
        if not self._may(principal, operation, resource):
            denied = PermissionDenied(
                refusal(principal.name, operation, resource, kept=_is_read_only(operation, resource))
            )
            self._note(principal, verb or operation, resource, denied)
            raise denied

    def allows(self, principal: Principal, operation: Operation, resource: str | None) -> bool:
        try:
            return self._may(principal, operation, resource)
        except AnabranchError:
            return False

    def authorize_place(self, principal: Principal, place: str, *, verb: str = "") -> None:
        self.authorize(principal, "admin", None, verb=verb)
        try:
            check_place(place, self._settings.places)
        except PermissionDenied as exc:
            self._note(principal, verb or "admin", None, exc)
            raise

    def admit(self, principal: Principal, *, calls: int = 1, bytes_: int = 0) -> None:
        try:
            self._quotas.admit(principal.name, calls, bytes_)
        except RateLimited as exc:
            self._note(principal, "admit", None, exc)
            raise

    def hold(self, principal: Principal, what: Holdable, amount: int = 1) -> Holding:
        try:
            return self._quotas.hold(principal.name, what, amount)
        except RateLimited as exc:
            self._note(principal, f"hold {what}", None, exc)
            raise

    def record(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        if not isinstance(error, _REFUSALS):
            self._note(principal, verb, resource, error)

    def facts(self) -> dict[str, int]:
        """Values for metrics: the notes that the audit dropped, and what callers hold now."""
        return {"audit_dropped": self._audit.dropped, **self._quotas.held()}

    def close(self) -> None:
        self._access.close()
        if self._signed is not None:
            self._signed.close()
        self._audit.close()

    def _principal_of(self, token: str, peer: str) -> Principal:
        if len(token) > _TOKEN_CHARS_MAX:
            raise Unauthenticated("the token is too long")
        if not token.startswith(PREFIX):
            if self._signed is None:
                raise Unauthenticated("the token is not a token of this store")
            return replace(self._signed.principal(token), peer=peer)
        row = self._access.current().tokens.get(token_digest(token))
        if row is None:
            raise Unauthenticated("the token is unknown, or was revoked")
        principal = Principal(row.principal, token=row.id, peer=peer, expires_at=row.expires_at)
        self._check_expiry(principal)
        return principal

    def _may(self, principal: Principal, operation: Operation, resource: str | None) -> bool:
        self._check_expiry(principal)
        access = self._access.current()
        if principal.token is not None and principal.token not in access.by_id:
            raise Unauthenticated("the token was revoked")
        if _is_read_only(operation, resource):
            return False
        return any(rule.allows(operation, resource) for rule in access.rules(principal))

    def _check_expiry(self, principal: Principal) -> None:
        if principal.expires_at is not None and principal.expires_at <= self._clock.now():
            raise Unauthenticated("the token has expired")

    def _note(self, principal: Principal, verb: str, resource: str | None, error: Exception | None) -> None:
        outcome = "ok" if error is None else type(error).__name__
        self._audit.note(
            AuditKey(principal.name, verb, resource, outcome, reason_of(error), principal.token, principal.peer)
        )


def _is_read_only(operation: Operation, resource: str | None) -> bool:
    return operation != "read" and resource in _AUDIT_RESOURCES
