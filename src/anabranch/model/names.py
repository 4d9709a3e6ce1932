"""Names of scopes and streams: `scope` and `scope/name`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from anabranch import limits
from anabranch.errors import InvalidArgument, InvalidName

INTERNAL_SCOPE: Final = "_store"  # the scope of the store's own streams, apart from those in users' scopes

# A leading underscore marks internal streams; users' names start with a letter or digit.
_PART = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.\-]{{0,{limits.NAME_CHARS_MAX - 1}}}\Z")
_RULE = "a letter (a-z, A-Z) or digit, then also '_', '-' and '.', at most {} characters"
_FULL_RULE = _RULE.format(limits.NAME_CHARS_MAX)


def check_scope(scope: str) -> str:
    """Return `scope` if it is a usable scope name, else raise InvalidName."""
    if not isinstance(scope, str) or not _PART.match(scope):
        raise InvalidName(f"'{scope!s:.200}' is not a valid scope name: expected {_FULL_RULE}")
    return scope


def scope_key(scope: str) -> str:
    """The name by which to find a scope, whether it is usable or not. Raises InvalidName for anything but text."""
    if not isinstance(scope, str):
        raise InvalidName(f"expected a scope name as text, got {type(scope).__name__}")
    return scope


def check_plain_name(name: str, kind: str, *, prefix: str = "", hint: str = "") -> str:
    """Return `name` if it is usable for something of this `kind`, such as a query: with `prefix` before it, it follows the rule
    of a stream's name. `hint` ends the message. Raises InvalidArgument."""
    if not isinstance(name, str) or not _PART.match(name) or not _PART.match(f"{prefix}{name}"):
        rule = _RULE.format(limits.NAME_CHARS_MAX - len(prefix))
        raise InvalidArgument(f"'{name!s:.200}' is not a valid name for a {kind}: expected {rule}{hint}")
    return name


def check_free_name(name: str, kind: str) -> str:
    """Return `name` if it can name something of this `kind`, such as a reader, for which any Unicode text will do. Raises
    InvalidArgument."""
    if not isinstance(name, str) or not 0 < len(name) <= limits.NAME_CHARS_MAX or not is_unicode(name):
        raise InvalidArgument(
            f"expected a {kind} name of 1 to {limits.NAME_CHARS_MAX} characters of Unicode, got {name!r:.300}"
        )
    return name


def is_unicode(text: str) -> bool:
    """False for text that has no UTF-8, as a file's name or an argument of the command line may be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(frozen=True, slots=True, order=True)
class StreamName:
    """A stream's full name. Its text form is `scope/name`."""

    scope: str
    name: str

    @classmethod
    def parse(cls, text: str | StreamName) -> StreamName:
        """Parse `scope/name`. Raises InvalidName."""
        if isinstance(text, StreamName):
            return text
        if not isinstance(text, str):
            raise InvalidName(f"expected a stream name as text, got {type(text).__name__}")
        scope, slash, name = text.partition("/")
        if not slash or not _PART.match(scope) or not _PART.match(name):
            raise InvalidName(f"'{text:.200}' is not a stream name: expected scope/name, each {_FULL_RULE}")
        return cls(scope, name)

    @property
    def internal(self) -> bool:
        """True for streams that the store keeps for its own use."""
        return self.name.startswith("_") or self.scope.startswith("_")

    def __str__(self) -> str:
        return f"{self.scope}/{self.name}"
