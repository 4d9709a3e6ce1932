"""The address of a PostgreSQL catalog: a libpq URL with libpq's options and one more, `schema`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from anabranch.core.redact import HIDDEN, secrets_in, shown_address
from anabranch.core.url_options import url_options
from anabranch.errors import InvalidArgument

SCHEMES = ("postgresql", "postgres")
SCHEMA = "anabranch"
PREFIXES = tuple(f"{scheme}://" for scheme in SCHEMES)  # of such a catalog's URL

# As libpq parses a URL: the user part ends at the first `@`, if no `/` comes before it.
_URL = re.compile(
    r"(?:postgresql|postgres)://(?:(?P<user>[^@/]*)@)?(?P<hosts>[^/?]*)(?P<database>/[^?]*)?(?:\?(?P<query>.*))?\Z",
    re.DOTALL,
)
_HOST = re.compile(r"(?:[A-Za-z0-9_.%\-]*|\[[0-9A-Fa-f:.%]+\])(?::[0-9]{0,5})?\Z")
_NOT_ESCAPED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SECRET_OPTION = re.compile(rf"(?<=[?&])[a-z_]+={HIDDEN}(?:&|\Z)")
_NAME = re.compile(r"[a-z_]{1,32}\Z")

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}\Z")  # PostgreSQL cuts names at 63 bytes, and the channel's name is longer


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A parsed address. `conninfo` is for libpq and may hold a password; `shown` is for messages and never does.
    `secrets` must not appear in messages."""

    conninfo: str = field(repr=False)
    schema: str
    shown: str
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @classmethod
    def parse(cls, url: str) -> DatabaseAddress:
        """Parse a URL such as `postgresql://user@host:5432/database?sslmode=verify-full&schema=river`: every option of
        libpq, and `schema`, the schema that holds the catalog (default `anabranch`). Raises InvalidArgument, whose
        message quotes no password. Refuses what libpq would misread, because libpq's own error would quote it."""
        parts = _URL.match(url)
        if parts is None or not _is_sound(parts["user"], parts["hosts"], parts["database"]):
            raise InvalidArgument(
                f"expected postgresql://user:password@host:port/database?option=value, got {shown_address(url)}; "
                "within a user, password or database write %40 for @, %2F for /, %3A for :, %25 for %"
            )
        options = url_options(parts["query"] or "")
        schema = next((value for name, value in options if name == "schema"), SCHEMA)
        if not _SCHEMA.match(schema) or schema.startswith("pg_"):
            raise InvalidArgument("expected ?schema= of a-z, 0-9 and _, at most 48 characters, not starting with pg_")
        libpq_options = [(name, value) for name, value in options if name != "schema"]
        _reject_unknown([name for name, _ in libpq_options])
        base = url if parts["query"] is None else url[: parts.start("query") - 1]
        conninfo = base + ("?" + urlencode(libpq_options, quote_via=quote) if libpq_options else "")
        shown = _SECRET_OPTION.sub("", shown_address(url)).rstrip("?&")
        return cls(conninfo, schema, shown, secrets_in(url))

    @property
    def channel(self) -> str:
        """The notification channel of the catalog."""
        return f"anabranch_{self.schema}"


def _is_sound(user: str | None, hosts: str, database: str | None) -> bool:
    if any(_NOT_ESCAPED.search(text or "") for text in (user, hosts, database)) or "@" in (database or ""):
        return False
    return all(_HOST.match(host) for host in hosts.split(","))


def _reject_unknown(names: list[str]) -> None:
    """Raise InvalidArgument for an option that libpq does not have."""
    try:
        from psycopg.pq import Conninfo
    except ImportError:  # connecting reports that it is missing
        return
    known = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
    for name in names:
        if name not in known:
            shown = f"'{name}'" if _NAME.match(name) else "one of its options"
            raise InvalidArgument(
                f"{shown} is not an option of a PostgreSQL URL; expected one of libpq's parameter key words, or schema"
            )
