"""Callers that an identity provider knows: JWTs, as OpenID Connect has them."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from anabranch import limits
from anabranch.errors import InvalidArgument, Unauthenticated
from anabranch.model.ids import Micros
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import Principal
from anabranch.security.key_set import ALGORITHMS, KeySet
from anabranch.security.rights import check_principal

PREFIX: Final = "oidc:"
_LEEWAY_S: Final = 30  # the largest difference of the provider's clock
_GROUPS_MAX: Final = 1_000
_US: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """An identity provider. Its tokens must have this `issuer` and `audience`. `jwks` is the address of its keys; None:
    it is taken from the issuer's metadata. The claim `principal_claim` names the principal, `oidc:NAME`; `groups_claim`
    is a list of groups, to which roles may be bound."""

    issuer: str
    audience: str
    jwks: str | None = None
    principal_claim: str = "sub"
    groups_claim: str = "groups"


@dataclass(frozen=True, slots=True)
class _Verified:
    principal: Principal
    key_id: str


class OidcTokens:
    """Verifies JWTs: see `SignedTokens`. A verified token is cached until it expires or its key is withdrawn; a refused
    token until the keys change. Close it."""

    def __init__(self, settings: OidcSettings, runtime: Runtime) -> None:
        if not settings.audience:
            raise InvalidArgument("set the audience that the identity provider's tokens must have (audience)")
        self._settings = settings
        self._clock = runtime.clock
        self._lock = runtime.tasks.lock()
        self._verified: OrderedDict[bytes, _Verified] = OrderedDict()
        self._refused: OrderedDict[bytes, str] = OrderedDict()
        self.keys = KeySet(settings.issuer, settings.jwks, runtime, self._keys_changed)
        self.keys.start()

    def principal(self, token: str) -> Principal:
        """Who the token names. Raises Unauthenticated; a token whose key is not known yet may pass a moment later."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        with self._lock:
            known, refused = self._verified.get(digest), self._refused.get(digest)
        if known is not None:
            assert known.principal.expires_at is not None
            if known.principal.expires_at > self._clock.now():
                return known.principal
            raise Unauthenticated("the token has expired")
        if refused is not None:
            raise Unauthenticated(refused)
        key_id, key = self._key_of(token)
        try:
            claims = self._verify(token, key)
        except Unauthenticated as exc:
            self._keep(self._refused, digest, str(exc))
            raise
        principal = self._principal_from(claims, self._check_times(claims))
        self._keep(self._verified, digest, _Verified(principal, key_id))
        return principal

    def close(self) -> None:
        """End background work. A second call does nothing."""
        self.keys.close()

    def _key_of(self, token: str) -> tuple[str, jwt.PyJWK]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthenticated("the token is neither a token of this store nor a JWT") from None
        key_id = header.get("kid")
        if header.get("alg") not in ALGORITHMS:
            raise Unauthenticated("the token's signature algorithm is not accepted")
        if not isinstance(key_id, str):
            raise Unauthenticated("the token does not name the key that signed it (kid)")
        key = self.keys.find(key_id)
        if key is None:
            raise Unauthenticated("the token was signed with a key that the identity provider does not list (yet)")
        return key_id, key

    def _verify(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        """The claims of a token that the provider has signed for this broker; its times are not checked yet."""
        settings = self._settings
        try:
            return jwt.decode(
                token,
                key,
                # The algorithm of the key decides, not the one that the token names.
                algorithms=[key.algorithm_name],
                audience=settings.audience,
                issuer=settings.issuer,
                # `_check_times` checks the times, by the store's clock: a refusal for its time is not cached.
                options={
                    "require": ["exp", "iss", "aud", settings.principal_claim],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as exc:
            raise Unauthenticated(f"the token is refused: {_reason(exc)}") from None

    def _principal_from(self, claims: Mapping[str, Any], expires_at: Micros) -> Principal:
        settings = self._settings
        name = claims[settings.principal_claim]
        if settings.principal_claim == "email" and claims.get("email_verified") is not True:
            raise Unauthenticated("the token is refused: the provider has not verified its email address")
        groups = claims.get(settings.groups_claim, [])
        if (
            not isinstance(groups, list)
            or len(groups) > _GROUPS_MAX
            or not all(isinstance(each, str) for each in groups)
        ):
            raise Unauthenticated(f"the token is refused: its claim '{settings.groups_claim}' is not a list of names")
        if not isinstance(name, str) or not name:
            raise Unauthenticated("the token is refused: the name of its principal is missing or invalid")
        try:
            return Principal(check_principal(f"{PREFIX}{name}"), groups=tuple(groups), expires_at=expires_at)
        except InvalidArgument:
            raise Unauthenticated("the token is refused: the name of its principal is missing or invalid") from None

    def _check_times(self, claims: Mapping[str, Any]) -> Micros:
        now_s = self._clock.now() / _US
        expires, begins = claims["exp"], claims.get("nbf", 0)
        if not _is_time(expires) or not _is_time(begins):
            raise Unauthenticated("the token is refused: its times are not numbers")
        if expires + _LEEWAY_S <= now_s:
            raise Unauthenticated("the token has expired")
        if begins - _LEEWAY_S > now_s:
            raise Unauthenticated("the token is not valid yet")
        return Micros(int((expires + _LEEWAY_S) * _US))

    def _keys_changed(self, keys: Mapping[str, jwt.PyJWK]) -> None:
        with self._lock:
            self._refused.clear()
            for digest in [digest for digest, each in self._verified.items() if each.key_id not in keys]:
                del self._verified[digest]

    def _keep(self, cache: OrderedDict[bytes, Any], digest: bytes, value: Any) -> None:
        with self._lock:
            cache[digest] = value
            if len(cache) > limits.SIGNED_TOKENS_KEPT:
                cache.popitem(last=False)


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e11  # type: ignore[operator]


def _reason(exc: Exception) -> str:
    """Why a JWT is refused, without quoting it."""
    named: tuple[tuple[type[Exception], str], ...] = (
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.InvalidIssuerError, "it is from another issuer"),
        (jwt.MissingRequiredClaimError, f"{exc}"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
    )
    return next((text for kind, text in named if isinstance(exc, kind)), "it is malformed")
