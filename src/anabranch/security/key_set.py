"""The keys of an identity provider: fetched from its JWKS address, and again as they rotate."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import jwt

from anabranch import limits
from anabranch.core.redact import shown_address
from anabranch.errors import InvalidArgument, StoreUnavailable
from anabranch.runtime.periodic import Periodic
from anabranch.runtime.ports import Runtime
from anabranch.security.exposure import is_loopback

DISCOVERY: Final = "/.well-known/openid-configuration"
# Only signatures by a private key: a public key must never be used as a shared secret.
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_KINDS: Final = ("RSA", "EC", "OKP")
_RSA_BITS_MIN: Final = 2_048


class KeySet:
    """The provider's keys by their id, renewed every `limits.KEY_SET_S` by a task of its own. `find` never waits.

    `address` is a JWKS address; None: it is taken from the issuer's metadata. `start` begins the first fetch, which is
    retried if the provider does not answer; no key is known before it succeeds. `on_change` is called with the keys
    after each change."""

    def __init__(
        self, issuer: str, address: str | None, runtime: Runtime, on_change: Callable[[Mapping[str, jwt.PyJWK]], None]
    ) -> None:
        for each in (issuer, *(() if address is None else (address,))):
            check_address(each)
        self._issuer = issuer
        self._address = address
        self._clock = runtime.clock
        self._on_change = on_change
        self._keys: Mapping[str, jwt.PyJWK] = MappingProxyType({})
        self._fetched_at = float("-inf")
        self._round = Periodic(runtime, "key set", limits.KEY_SET_S, self.refresh, at_once=True)

    def start(self) -> None:
        """Fetch the keys in the background."""
        self._round.start()

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """The key with this id. If it is unknown the keys are fetched again in the background, but not more often than
        every `limits.KEY_SET_AGAIN_S`."""
        key = self._keys.get(key_id)
        if key is None and self._clock.monotonic() - self._fetched_at > limits.KEY_SET_AGAIN_S:
            self._fetched_at = self._clock.monotonic()
            self._round.wake()
        return key

    def refresh(self) -> None:
        """Fetch the keys now. Raises StoreUnavailable; the former keys then stay."""
        self._fetched_at = self._clock.monotonic()
        if self._address is None:
            metadata = _fetch_object(self._issuer.rstrip("/") + DISCOVERY)
            if metadata.get("issuer") != self._issuer:
                raise StoreUnavailable(f"{shown_address(self._issuer)} describes a different issuer")
            address = metadata.get("jwks_uri")
            if not isinstance(address, str):
                raise StoreUnavailable(f"{shown_address(self._issuer)} has no address of its keys (jwks_uri)")
            try:
                check_address(address)
            except InvalidArgument as exc:
                raise StoreUnavailable(str(exc)) from exc
        else:
            address = self._address
        keys = _usable_keys(_fetch_object(address))
        if not keys:
            raise StoreUnavailable(f"{shown_address(address)} holds no key that can be used")
        self._keys = MappingProxyType(keys)
        self._on_change(self._keys)

    def close(self) -> None:
        """End the task. A second call does nothing."""
        self._round.close()


def check_address(address: str) -> None:
    """Raise InvalidArgument unless the address is https, or http on this machine."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
    except ValueError:
        raise InvalidArgument(f"'{shown_address(address)}' is not an address") from None
    if parts.scheme == "https" and host:
        return
    if parts.scheme == "http" and is_loopback(host) and "%" not in host:  # urllib would decode the %
        return
    raise InvalidArgument(f"'{shown_address(address)}' can't be trusted: expected an https:// address")


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows a redirection only to an address that `check_address` accepts."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        check_address(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch_object(address: str) -> dict[str, Any]:
    request = urllib.request.Request(address, headers={"Accept": "application/json"})
    try:
        opener = urllib.request.build_opener(_SafeRedirects)
        with opener.open(request, timeout=limits.KEY_SET_ANSWER_S) as answer:
            body = answer.read(limits.KEY_SET_BYTES_MAX + 1)
        if len(body) > limits.KEY_SET_BYTES_MAX:
            raise ValueError("the answer is too long")
        found = json.loads(body)
        if not isinstance(found, dict):
            raise ValueError("expected a JSON object")
    except (OSError, ValueError, RecursionError) as exc:
        why = getattr(exc, "reason", exc)
        raise StoreUnavailable(f"the identity provider's {shown_address(address)} can't be read: {why}") from exc
    return found


def _usable_keys(key_set: Mapping[str, Any]) -> dict[str, jwt.PyJWK]:
    """The keys that have an id and are for signatures. Other keys are left out: they may be for encryption."""
    listed = key_set.get("keys")
    keys = {}
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, dict) or each.get("kty") not in _KINDS or each.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK(each)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            continue
        small = getattr(key.key, "key_size", _RSA_BITS_MIN) < _RSA_BITS_MIN and each["kty"] == "RSA"
        if isinstance(each.get("kid"), str) and key.algorithm_name in ALGORITHMS and not small:
            keys[each["kid"]] = key
    return keys
