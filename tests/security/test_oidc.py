"""JWTs of an identity provider, whose keys a real HTTP server hands out."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from anabranch import limits
from anabranch.errors import InvalidArgument, StoreUnavailable, Unauthenticated
from anabranch.runtime.ports import Runtime
from anabranch.security.guard import Principal
from anabranch.security.key_set import KeySet, check_address
from anabranch.security.oidc import OidcSettings, OidcTokens
from anabranch.security.roles import Roles
from anabranch.security.store_guard import StoreGuard
from anabranch.store import Store
from anabranch.testing.clock import ManualClock
from tests.waiting import until

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
NOW_S = 1_700_000_000


def listed(key: Any, key_id: str, **more: Any) -> dict[str, Any]:
    """A key as a provider lists it."""
    algorithm = {"RSA": jwt.algorithms.RSAAlgorithm, "EC": jwt.algorithms.ECAlgorithm}
    kind = (
        "RSA" if isinstance(key, rsa.RSAPrivateKey) else "EC" if isinstance(key, ec.EllipticCurvePrivateKey) else "OKP"
    )
    to_jwk: Any = algorithm.get(kind, jwt.algorithms.OKPAlgorithm).to_jwk  # type: ignore[attr-defined]
    return {**json.loads(to_jwk(key.public_key())), "kid": key_id, "use": "sig", **more}


class Provider:
    """An identity provider on this machine."""

    def __init__(self) -> None:
        self.keys = [listed(RSA, "rsa"), listed(EC, "ec"), listed(ED, "ed")]
        self.answers: dict[str, Callable[[], Any]] = {
            "/keys": lambda: {"keys": self.keys},
            "/.well-known/openid-configuration": lambda: {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
        }
        self.asked = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                answer = provider.answers[self.path]()
                if isinstance(answer, str):
                    self.send_response(302)
                    self.send_header("Location", answer)
                    self.end_headers()
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(answer if isinstance(answer, bytes) else json.dumps(answer).encode())

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def token(self, key: Any = ED, key_id: str = "ed", algorithm: str = "EdDSA", **claims: Any) -> str:
        """A signed token; a claim that is None is left out."""
        given = {"iss": self.url, "aud": "river", "sub": "alice", "exp": NOW_S + 600, "groups": ["ops"], **claims}
        kept = {name: value for name, value in given.items() if value is not None}
        return jwt.encode(kept, key, algorithm, headers={"kid": key_id})


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S * 1_000_000)


@pytest.fixture
def tokens(provider: Provider, clock: ManualClock) -> Iterator[OidcTokens]:
    made = OidcTokens(OidcSettings(provider.url, "river"), Runtime(clock=clock))
    until(lambda: made.keys.find("ed"))
    yield made
    made.close()


def passes(tokens: OidcTokens, token: str) -> bool:
    try:
        return bool(tokens.principal(token))
    except Unauthenticated:
        return False


@pytest.mark.parametrize(
    ("key", "key_id", "algorithm"), [(RSA, "rsa", "RS256"), (EC, "ec", "ES256"), (ED, "ed", "EdDSA")]
)
def test_a_signed_token_names_its_principal_and_groups(
    tokens: OidcTokens, provider: Provider, key: Any, key_id: str, algorithm: str
) -> None:
    token = provider.token(key, key_id, algorithm)
    first = tokens.principal(token)
    assert (first.name, first.groups, first.roles, first.token) == ("oidc:alice", ("ops",), (), None)
    assert tokens.principal(token) is first, "verified once"


def test_a_token_is_good_until_it_expires(tokens: OidcTokens, provider: Provider, clock: ManualClock) -> None:
    token, early = provider.token(), provider.token(nbf=NOW_S + 300)
    assert passes(tokens, token) and not passes(tokens, early)
    clock.pass_time(629_999_999)
    assert passes(tokens, token) and passes(tokens, early)
    clock.pass_time(1)
    assert not passes(tokens, token)
    assert not passes(tokens, provider.token(sub="bob")), "also when it was never seen before"


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "aud"),
        ({"iss": "https://evil.example.com"}, "another issuer"),
        ({"iss": None}, "iss"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "times are not numbers"),
        ({"exp": True}, "times are not numbers"),
        ({"exp": 1e300}, "times are not numbers"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "missing or invalid"),
        ({"sub": "a b"}, "missing or invalid"),
        ({"groups": "ops"}, "not a list of names"),
        ({"groups": [1]}, "not a list of names"),
    ],
)
def test_claims_that_are_missing_or_not_for_this_broker_are_refused(
    tokens: OidcTokens, provider: Provider, claims: dict[str, Any], said: str
) -> None:
    for _ in range(2):
        with pytest.raises(Unauthenticated, match=said):
            tokens.principal(provider.token(**claims))


def packed(value: object) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def forged(provider: Provider, header: dict[str, Any], secret: bytes | None) -> str:
    """A token that is not signed at all, or with a shared secret."""
    claims = {"iss": provider.url, "aud": "river", "sub": "root", "exp": NOW_S + 600}
    text = f"{packed(header)}.{packed(claims)}"
    signature = b"" if secret is None else hmac.new(secret, text.encode(), hashlib.sha256).digest()
    return f"{text}.{packed(signature)}"


def test_an_unsigned_token_and_one_signed_with_the_public_key_as_a_secret_are_refused(
    tokens: OidcTokens, provider: Provider
) -> None:
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    raw = ED.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    for algorithm in ("none", "None", "NONE", "", None):
        assert not passes(tokens, forged(provider, {"alg": algorithm, "kid": "rsa"}, None))
    for secret in (public, raw, b""):
        for key_id in ("rsa", "ed"):
            assert not passes(tokens, forged(provider, {"alg": "HS256", "kid": key_id}, secret))
    provider.keys.append({"kty": "oct", "kid": "shared", "k": packed(b"s" * 32), "alg": "HS256"})
    tokens.keys.refresh()
    assert not passes(tokens, forged(provider, {"alg": "HS256", "kid": "shared"}, b"s" * 32))


def test_a_key_of_the_token_s_own_choice_is_not_used(tokens: OidcTokens, provider: Provider) -> None:
    own = ed25519.Ed25519PrivateKey.generate()
    brought = {"alg": "EdDSA", "kid": "ed", "jwk": listed(own, "ed"), "jku": f"{provider.url}/evil"}
    claims = {"iss": provider.url, "aud": "river", "sub": "root", "exp": NOW_S + 600}
    assert not passes(tokens, jwt.encode(claims, own, "EdDSA", headers=brought))
    assert not passes(tokens, provider.token(EC, "rsa", "ES256")), "another key's algorithm"
    assert not passes(tokens, jwt.encode(claims, ED, "EdDSA")), "no key id"


@pytest.mark.parametrize(
    "text", ["a.b.c", "..", "eyJ.eyJ.eyJ", "\x00.\x00.\x00", "ä.ö.ü", "[" * 5_000 + ".x.x", "\udce4.x.y"]
)
def test_rubbish_is_refused(tokens: OidcTokens, text: str) -> None:
    assert not passes(tokens, text)
    nested = packed(b"[" * 8_000)
    assert not passes(tokens, f"{nested}.{nested}.x")


def test_a_new_key_is_fetched_when_a_token_names_it_and_a_withdrawn_one_ends_its_tokens(
    tokens: OidcTokens, provider: Provider, clock: ManualClock
) -> None:
    new = ed25519.Ed25519PrivateKey.generate()
    old_token, new_token = provider.token(), provider.token(new, "new")
    assert passes(tokens, old_token) and not passes(tokens, new_token)
    provider.keys = [listed(new, "new")]
    asked = provider.asked
    for _ in range(20):
        assert not passes(tokens, new_token)
    assert provider.asked == asked, "not asked again within a short time, whoever sends unknown keys"
    clock.pass_time(int(limits.KEY_SET_AGAIN_S * 1e6) + 1)
    until(lambda: passes(tokens, new_token))
    assert not passes(tokens, old_token)


def test_while_the_provider_fails_its_former_keys_are_used(tokens: OidcTokens, provider: Provider) -> None:
    answers: list[Any] = [
        *({}, [], {"keys": []}, {"keys": [{"kty": "RSA", "kid": "x"}]}, b"hello", b"[" * 100_000),
        *(b"x" * (limits.KEY_SET_BYTES_MAX + 1), "http://10.255.255.1/keys", "file:///etc/passwd"),
        {"keys": [listed(rsa.generate_private_key(public_exponent=65537, key_size=1024), "weak")]},
    ]
    for answer in answers:
        provider.answers["/keys"] = partial(deepcopy, answer)
        with pytest.raises(StoreUnavailable):
            tokens.keys.refresh()
        assert passes(tokens, provider.token(sub="bob"))
    provider.answers["/.well-known/openid-configuration"] = lambda: {"issuer": "https://evil.example.com"}
    with pytest.raises(StoreUnavailable, match="a different issuer"):
        tokens.keys.refresh()
    provider.answers["/.well-known/openid-configuration"] = lambda: {
        "issuer": provider.url,
        "jwks_uri": "http://x.org/",
    }
    with pytest.raises(StoreUnavailable, match="expected an https"):
        tokens.keys.refresh()


def test_a_mail_address_counts_only_if_the_provider_has_verified_it(provider: Provider, clock: ManualClock) -> None:
    settings = OidcSettings(provider.url, "river", jwks=f"{provider.url}/keys", principal_claim="email")
    tokens = OidcTokens(settings, Runtime(clock=clock))
    until(lambda: tokens.keys.find("ed"))
    assert tokens.principal(provider.token(email="a@b.org", email_verified=True)).name == "oidc:a@b.org"
    for verified in (None, False, "true"):
        assert not passes(tokens, provider.token(email="a@b.org", email_verified=verified))
    tokens.close()


@pytest.mark.parametrize(
    "address",
    [
        *("http://idp.example.com/keys", "ftp://x/", "file:///etc/passwd", "idp", "http://[", "https://"),
        *("http://127.0.0.1%2eexample.com/keys", "http://localhost%2eexample.com/", "http://[::1%2eexample.com]/"),
    ],
)
def test_keys_come_from_https_addresses_alone(address: str) -> None:
    with pytest.raises(InvalidArgument):
        check_address(address)
    with pytest.raises(InvalidArgument):
        KeySet("https://idp.example.com", address, Runtime(), lambda _: None)


def test_a_group_s_roles_are_those_of_its_members(provider: Provider, store: Store) -> None:
    Roles(store.changes).bind("reader", "group:ops", "iot/")
    signed = OidcTokens(OidcSettings(provider.url, "river"), store.runtime)
    guard = StoreGuard(store, signed=signed)
    token = provider.token(exp=store.runtime.clock.now() // 1_000_000 + 600)
    until(lambda: passes(signed, token))
    alice = guard.authenticate(token=token, certificate=None, peer="p")
    assert guard.allows(alice, "read", "iot/sensors") and not guard.allows(alice, "write", "iot/sensors")
    assert not guard.allows(Principal("oidc:bob"), "read", "iot/sensors")
    guard.close()
