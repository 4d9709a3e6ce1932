"""What the headers of a Flight call say: who makes it, and the dialect of its SQL. Drivers send the dialect with every call:
ADBC by `adbc.flight.sql.rpc.call_header.anabranch-dialect`, JDBC by a parameter of the URL."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyarrow import flight

from anabranch.errors import AnabranchError, Unauthenticated
from anabranch.security.guard import Guard, Principal
from anabranch.wire.commands import DIALECT_HEADER
from anabranch.wire.flight_errors import to_flight

TOKEN: Final = "token"
DIALECT: Final = "dialect"
_HEADER: Final = "authorization"
_MALFORMED: Final = "expected 'Authorization: Basic …' with a user name and a token as the password"


class _Token(flight.ServerMiddleware):  # type: ignore[misc]
    """The token of one call; None if it has none. `answered` is the token that the answer tells the client to send."""

    def __init__(self, token: str | None, answered: str | None = None) -> None:
        super().__init__()
        self.token = token
        self._answered = answered

    def sending_headers(self) -> dict[str, str]:
        """Called by pyarrow before the answer."""
        return {} if self._answered is None else {_HEADER: f"Bearer {self._answered}"}


class TokenMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Takes the token out of `authorization: Bearer …`, or out of the password of `authorization: Basic …`.

    A handshake with a user name and a password, as drivers for JDBC and ODBC begin, is answered by the token to send."""

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self._guard = guard

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> _Token:
        """Called by pyarrow at the start of each call."""
        try:
            scheme, token = _sent(headers)
            if scheme != "basic" or info.method != flight.FlightMethod.HANDSHAKE:
                return _Token(token)
            # pyarrow does not say here where the call comes from.
            self._guard.admit(self._guard.authenticate(token=token, certificate=None, peer=""))
            return _Token(token, answered=token)
        except AnabranchError as exc:
            raise to_flight(exc) from None


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets every handshake and call pass: `TokenMiddleware` and `caller` check them."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Called by pyarrow for a handshake."""

    def is_valid(self, token: bytes) -> bytes:
        """Called by pyarrow for each other call."""
        del token
        return b""


def caller(guard: Guard, context: Any) -> Principal:
    """Who makes the call. Raises Unauthenticated, RateLimited."""
    found = context.get_middleware(TOKEN)
    certificate = context.peer_identity().decode("utf-8", "replace") or None
    return guard.authenticate(token=found and found.token, certificate=certificate, peer=context.peer())


def header_of(headers: Mapping[str, Sequence[str | bytes]], name: str) -> str | None:
    """The first value of a header of a call."""
    for each, values in headers.items():
        if each.lower() == name and values:
            return values[0] if isinstance(values[0], str) else values[0].decode("latin-1")
    return None


def _sent(headers: Mapping[str, Sequence[str | bytes]]) -> tuple[str, str | None]:
    """The scheme in lower case, and the token. Raises Unauthenticated."""
    scheme, _, rest = (header_of(headers, _HEADER) or "").partition(" ")
    match scheme.lower():
        case "bearer":
            return "bearer", rest.strip()
        case "basic":
            return "basic", _password(rest)
    return "", None


def _password(encoded: str) -> str:
    """What follows the first colon. Raises Unauthenticated: also for characters that the header of an answer can't
    have, where gRPC would fail with an internal error."""
    try:
        bare = encoded.strip().rstrip("=")  # some clients leave the padding out
        padded = bare + "=" * (-len(bare) % 4)
        user, colon, password = b64decode(padded, validate=True).decode("ascii").partition(":")
    except ValueError:
        raise Unauthenticated(_MALFORMED) from None
    del user  # the token alone identifies the caller
    if not colon or not password.isprintable():
        raise Unauthenticated(_MALFORMED)
    return password


class _Dialect(flight.ServerMiddleware):  # type: ignore[misc]
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class DialectMiddleware(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Takes the dialect out of the headers."""

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str | bytes]]) -> _Dialect | None:
        """Called by pyarrow at the start of each call."""
        del info
        name = header_of(headers, DIALECT_HEADER)
        return None if name is None else _Dialect(name)


def dialect_of(context: Any) -> str | None:
    """The dialect that a call names; None: DuckDB's."""
    found = context.get_middleware(DIALECT)
    return None if found is None else found.name
