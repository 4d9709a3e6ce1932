"""Where a catalog lies: a libpq URL whose options libpq understands, and one that is ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from anabranch.errors import InvalidArgument

SCHEMES = ("postgresql", "postgres")
SCHEMA = "anabranch"
PREFIXES = tuple(f"{scheme}://" for scheme in SCHEMES)  # how the URL of such a catalog begins

_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}\Z")  # PostgreSQL cuts names at 63 bytes; a channel's name is longer


@dataclass(frozen=True, slots=True)
class Address:
    """`conninfo` is for libpq and may hold a password; `shown` is for people and never does."""

    conninfo: str
    schema: str
    shown: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """From `postgresql://user@host:5432/database?sslmode=verify-full&schema=river`: every option of libpq, and
        `schema`, the schema that holds the catalog (default `anabranch`). Raises InvalidArgument."""
        # Several hosts (`a,b`) and a socket's folder in the options are libpq's business: only the query is taken apart.
        base, _, query = url.partition("?")
        options = parse_qsl(query, keep_blank_values=True)
        schema = next((value for name, value in options if name == "schema"), SCHEMA)
        if not _SCHEMA.match(schema) or schema.startswith("pg_"):
            raise InvalidArgument(f"'{schema}' is no name for a schema: use a-z, 0-9 and _, at most 48 characters")
        rest = [(name, value) for name, value in options if name != "schema"]
        conninfo = base + ("?" + urlencode(rest, quote_via=quote) if rest else "")
        secret = {"password", "passfile", "sslpassword"}
        public = [(name, value) for name, value in options if name not in secret]
        return cls(conninfo, schema, _without_password(base) + ("?" + urlencode(public, safe="/") if public else ""))

    @property
    def channel(self) -> str:
        """The notification channel of the catalog."""
        return f"anabranch_{self.schema}"


def _without_password(base: str) -> str:
    parts = urlsplit(base)
    user, at, hosts = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=user.partition(":")[0] + at + hosts))
