"""Addresses for display: what may be shown of a URL that can hold a password, a key or a token.

`shown_address` takes text that is an address, however it is spelled; `redacted` takes sentences that may quote
addresses. They leave out everything not known to be harmless, so a misspelt option never reveals a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

HIDDEN: Final = "…"

# Options of addresses whose values are not secret. All others are hidden, known or not.
_PUBLIC: Final = frozenset(
    [
        "endpoint",
        "region",
        "ca",
        "account",
        "allow_http",
        "virtual_hosted",
        "schema",
        "host",
        "hostaddr",
        "port",
        "user",
        "dbname",
        "sslmode",
        "sslrootcert",
        "connect_timeout",
        "application_name",
        "target_session_attrs",
        "channel_binding",
        "gssencmode",
        "load_balance_hosts",
        "keepalives",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
        "tcp_user_timeout",
    ]
)
_ADDRESSES: Final = frozenset(("endpoint",))  # options whose values are addresses themselves
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]{0,31}):/+")
_USER: Final = re.compile(r"[A-Za-z0-9_.%\-]{1,128}\Z")
_PARTED: Final = re.compile(r"[?&#;]")
_ASSIGNED: Final = re.compile(
    r"(?i)\b([a-z_.\-]*(?:password|passwd|pwd|passphrase|secret|token|credential|signature|sas|access_?key)[a-z_.\-]*)"
    r"(\s*=\s*)(?:'[^']*'|\"[^\"]*\"|[^\s&'\"]+)"
)
_IN_TEXT: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]{0,31}:/+[^\s'\"<>]+")
_LOCAL: Final = ("/", ".", "~")


def shown_address(text: str) -> str:
    """The address of a store, of blobs or of attached files, without anything that may be secret: the scheme, the user,
    the host and the path, and options that are known to be harmless. A local path is shown unchanged."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        if not text.startswith(_LOCAL) and "@" in text:
            text = f"{HIDDEN}@{text.rpartition('@')[2]}"
        return _ASSIGNED.sub(rf"\1\2{HIDDEN}", text)
    if scheme[1].lower() == "file":
        return _ASSIGNED.sub(rf"\1\2{HIDDEN}", text)
    rest = text[scheme.end() :]
    # A password may hold any character, even unescaped: everything before the last `@` is user and password.
    before, at, rest = rest.rpartition("@")
    user = before.partition(":")[0]
    shown_user = (user if _USER.match(user) else HIDDEN) + "@" if at else ""
    base, *options = _PARTED.split(rest)
    shown = [_shown_option(option) for option in options if option]
    return f"{scheme[0]}{shown_user}{_shown_base(base, whole=not at)}" + ("?" + "&".join(shown) if shown else "")


def _shown_base(base: str, *, whole: bool) -> str:
    """Host and path. A colon that is not followed by a port may separate a user and a password without an `@`."""
    host, slash, path = base.partition("/")
    if (
        whole
        and ":" in host
        and not re.fullmatch(r"[^:\[\]]*:\d{0,5}(,[^:\[\]]*(:\d{0,5})?)*|\[[0-9a-fA-F:.%]+\](:\d{0,5})?", host)
    ):
        return host.partition(":")[0] + ":" + HIDDEN
    return _ASSIGNED.sub(rf"\1\2{HIDDEN}", host + slash + path)


def _shown_option(option: str) -> str:
    name, equals, value = option.partition("=")
    if not equals:
        return HIDDEN
    if name not in _PUBLIC:
        return f"{name if re.fullmatch('[a-z_]{1,32}', name) else HIDDEN}={HIDDEN}"
    return f"{name}={shown_address(unquote(value)) if name in _ADDRESSES else value}"


def redacted(text: str) -> str:
    """A sentence with each address shown as by `shown_address`, and without the values of anything named password,
    secret, token or key."""
    return _ASSIGNED.sub(rf"\1\2{HIDDEN}", _IN_TEXT.sub(lambda found: shown_address(found[0]), text))


def secrets_in(url: str) -> tuple[str, ...]:
    """The parts of an address that must not be quoted, in each spelling: the password, and values of options not known
    to be harmless. The longest first."""
    scheme = _SCHEME.match(url)
    rest = url[scheme.end() :] if scheme else url
    before, _, rest = rest.rpartition("@")
    values = [before.partition(":")[2]]
    for option in _PARTED.split(rest)[1:]:
        name, _, value = option.partition("=")
        if name not in _PUBLIC:
            parted = (decode(value).replace("=", " ").split() for decode in (unquote, unquote_plus))
            values += [value, *chain.from_iterable(parted)]
    spelled = {each for value in values for each in (value, unquote(value), unquote_plus(value), quote(value, safe=""))}
    return tuple(sorted((each for each in spelled if each), key=len, reverse=True))


def hide_secrets(text: str, secrets: Iterable[str]) -> str:
    """Text from outside, such as a driver's, with these secrets hidden."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text
