"""Tokens: issued, listed and revoked."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from anabranch import limits
from anabranch.catalog.port import Reading, Writing
from anabranch.catalog.state.access import ACCESS_TOKEN, TokenRow
from anabranch.core.display import Displayed
from anabranch.errors import InvalidArgument
from anabranch.model.ids import Micros
from anabranch.security.access import note_change
from anabranch.security.rights import EVERYTHING, check_operations, check_pattern, check_principal
from anabranch.security.roles import need_role
from anabranch.security.secret import Secret
from anabranch.streams.change import Changes
from anabranch.streams.requests import Result

PREFIX: Final = "abt_"  # tells a token from a JWT, and lets scanners find tokens that were published by mistake
_ID_BITS: Final = 48
_SECRET_BITS: Final = 256


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token: its text, which can't be shown again, and what the catalog holds of it."""

    token: Secret
    row: TokenRow


def token_digest(text: str) -> str:
    """The hex by which a token is found."""
    return hashlib.sha256(text.encode()).hexdigest()


class Tokens(Displayed):
    """The tokens of a store. Brokers notice a change within about a second."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def issue(
        self,
        principal: str,
        *,
        roles: Iterable[str] = (),
        operations: Iterable[str] = (),
        on: Iterable[str] = (),
        expires_after_us: int | None = None,
    ) -> IssuedToken:
        """Make a token of a principal. With `roles` or `operations` it allows these on the names that match `on`
        (default: everything), whatever roles the principal has; without, what the principal's roles allow at the time
        of each call. Raises InvalidArgument, also for an unknown role."""
        _check_token_principal(principal)
        role_names, allowed = tuple(dict.fromkeys(roles)), check_operations(operations)
        patterns = tuple(dict.fromkeys(map(check_pattern, on)))
        if patterns and not (role_names or allowed):
            raise InvalidArgument("pass what the token allows on these names: a role, or operations")
        if not patterns and (role_names or allowed):
            patterns = (EVERYTHING,)
        if expires_after_us is not None and expires_after_us <= 0:
            raise InvalidArgument("expected the lifetime of a token to be above 0")
        if expires_after_us is not None and expires_after_us > limits.TOKEN_LIFETIME_US_MAX:
            raise InvalidArgument(
                "expected the lifetime of a token to be at most 1,000 years; for one that does not expire pass none "
                "(--expires never)"
            )
        ids = self._changes.runtime.ids
        ident = f"{ids.bits(_ID_BITS):012x}"
        secret = urlsafe_b64encode(ids.bits(_SECRET_BITS).to_bytes(_SECRET_BITS // 8, "big")).rstrip(b"=").decode()
        text = f"{PREFIX}{ident}_{secret}"
        now = self._changes.runtime.clock.now()
        expires_at = None if expires_after_us is None else Micros(now + expires_after_us)
        row = TokenRow(ident, principal, token_digest(text), role_names, allowed, patterns, now, expires_at)

        def change(txn: Writing, now: Micros) -> Result:
            for role in role_names:
                need_role(txn, role)
            held = _drop_long_expired(txn, now)
            if held >= limits.TOKENS_MAX:
                raise InvalidArgument(f"the store has {held} tokens, its limit: revoke some first")
            txn.put_state(ACCESS_TOKEN, ident, row)
            note_change(txn)
            return {}

        self._changes.apply(f"issue token {ident}", None, change)
        return IssuedToken(Secret(text), row)

    def list(self, principal: str | None = None) -> list[TokenRow]:
        """The tokens of a principal, or all, oldest first; also those that expired not long ago."""
        with self._changes.catalog.reading() as txn:
            rows = _rows(txn)
        found = [row for row in rows if principal is None or row.principal == principal]
        return sorted(found, key=lambda row: (row.created_at, row.id))

    def revoke(self, ids: Iterable[str] = (), *, principal: str | None = None) -> tuple[str, ...]:
        """Revoke tokens by their ids, or all of a principal. Returns the ids of those that were revoked. Raises
        InvalidArgument for an id that is unknown, and then revokes none."""
        wanted = tuple(dict.fromkeys(ids))

        def change(txn: Writing, now: Micros) -> Result:
            rows = {row.id: row for row in _rows(txn)}
            for ident in wanted:
                if ident not in rows:
                    # Not quoted: it may be a whole token.
                    raise InvalidArgument("no token has any of these ids; list the tokens with: anabranch token list")
            gone = [*wanted, *(row.id for row in rows.values() if row.principal == principal and row.id not in wanted)]
            for ident in gone:
                txn.drop_state(ACCESS_TOKEN, ident)
            if gone:
                note_change(txn)
            return {"revoked": gone}

        return tuple(self._changes.apply("revoke tokens", None, change)["revoked"])


def _rows(txn: Reading) -> list[TokenRow]:
    return [row for _, row in txn.states(ACCESS_TOKEN)]


def _drop_long_expired(txn: Writing, now: Micros) -> int:
    """Drop tokens that expired more than `limits.TOKEN_EXPIRED_KEPT_US` ago. Returns how many tokens are left."""
    rows = _rows(txn)
    gone = [row for row in rows if row.expires_at is not None and row.expires_at < now - limits.TOKEN_EXPIRED_KEPT_US]
    for row in gone:
        txn.drop_state(ACCESS_TOKEN, row.id)
    return len(rows) - len(gone)


def _check_token_principal(name: str) -> None:
    if ":" in check_principal(name):
        raise InvalidArgument(
            f"'{name}' can't have tokens: names with a colon are those of certificates (cert:…), of an identity "
            "provider (oidc:…) and of groups"
        )
