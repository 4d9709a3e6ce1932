"""Splits InfluxQL into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from anabranch.core.sql_text import place_of
from anabranch.errors import InvalidSql

Kind = Literal["name", "quoted", "string", "integer", "number", "duration", "parameter", "operator", "end"]

_SPACE = re.compile(r"(?:\s+|--[^\n]*)*")
_TOKEN = re.compile(
    r"""
      (?P<quoted>"(?:[^"\\\n]|\\.)*")
    | (?P<string>'(?:[^'\\\n]|\\.)*')
    | (?P<duration>(?:\d+(?:ns|us|ms|[uµsmhdw]))+)
    | (?P<number>\d+\.\d*|\.\d+)
    | (?P<integer>\d+)
    | (?P<parameter>\$(?:[A-Za-z_]\w*|"(?:[^"\\\n]|\\.)*"))
    | (?P<name>[A-Za-z_]\w*)
    | (?P<operator>=~|!~|!=|<>|<=|>=|::|[-+*/%&|^=<>(),;.:])
    """,
    re.VERBOSE | re.ASCII,
)
_REGEX = re.compile(r"/((?:[^/\\\n]|\\.)*)/")
_KEYWORDS: Final = """
    ALL ALTER ANALYZE ANY AS ASC BEGIN BY CREATE CONTINUOUS DATABASE DATABASES DEFAULT DELETE DESC
    DESTINATIONS DIAGNOSTICS DISTINCT DROP DURATION END EVERY EXPLAIN FIELD FOR FROM GRANT GRANTS GROUP GROUPS
    IN INF INSERT INTO KEY KEYS KILL LIMIT MEASUREMENT MEASUREMENTS NAME OFFSET ON ORDER PASSWORD POLICY
    POLICIES PRIVILEGES QUERIES QUERY READ REPLICATION RESAMPLE RETENTION REVOKE SELECT SERIES SET SHARD
    SHARDS SHOW SLIMIT SOFFSET STATS SUBSCRIPTION SUBSCRIPTIONS TAG TO USER USERS VALUES WHERE WITH WRITE
"""
KEYWORDS: Final = frozenset(_KEYWORDS.split())
"""Keywords: as names they must be quoted."""
_ESCAPES: Final = {"n": "\n", "\\": "\\", '"': '"', "'": "'"}


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its value without quotes, and where it begins. `text` is as it is written."""

    kind: Kind
    value: str
    text: str
    start: int
    stop: int

    @property
    def symbol(self) -> str:
        """An operator, or a word in capitals, which may be a keyword if it is not quoted; else empty."""
        return self.value.upper() if self.kind in ("name", "operator") else ""

    def is_one_of(self, *symbols: str) -> bool:
        """Whether it is one of these keywords and operators."""
        return self.symbol in symbols


class Scanner:
    """Reads tokens one after the other. A `/` begins a regular expression only where `regex` is asked for it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._comments_end = text.rfind("*/")  # from there on no comment is closed

    def token(self, at: int) -> Token:
        """The token at or after `at`. Raises InvalidSql."""
        start = self._begin(at)
        if start == len(self.text):
            return Token("end", "", "EOF", start, start)
        found = _TOKEN.match(self.text, start)
        if found is None:
            raise self.error(f"found {self.text[start]}, expected a name, a number or an operator", start)
        kind, text = found.lastgroup, found[0]
        assert kind is not None, "each alternative has a name"
        value = text
        if kind in ("quoted", "string"):
            value = self._unescaped(text[1:-1], start)
        elif kind == "parameter":
            value = self._unescaped(text[2:-1], start) if text[1] == '"' else text[1:]
        return Token(kind, value, text, start, found.end())  # type: ignore[arg-type]

    def regex(self, at: int) -> Token | None:
        """The regular expression at or after `at`, between slashes, or None."""
        start = self._begin(at)
        found = _REGEX.match(self.text, start)
        if found is None:
            return None
        return Token("string", found[1].replace("\\/", "/"), found[0], start, found.end())

    def error(self, message: str, at: int) -> InvalidSql:
        """The error at a place, with its line and character."""
        line, char = place_of(self.text, at)
        return InvalidSql(f"{message} at line {line}, char {char}")

    def _begin(self, at: int) -> int:
        while True:
            found = _SPACE.match(self.text, at)
            assert found is not None, "it matches nothing too"
            at = found.end()
            if not self.text.startswith("/*", at) or at + 2 > self._comments_end:
                return at
            at = self.text.index("*/", at + 2) + 2

    def _unescaped(self, text: str, start: int) -> str:
        if "\\" not in text:
            return text

        def one(found: re.Match[str]) -> str:
            if found[1] not in _ESCAPES:
                raise self.error(f"bad escape \\{found[1]}", start)
            return _ESCAPES[found[1]]

        return re.sub(r"\\(.)", one, text)
