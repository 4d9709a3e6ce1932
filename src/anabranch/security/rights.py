"""What rules allow: pure decisions on operations and names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, get_args

from anabranch import limits
from anabranch.errors import InvalidArgument
from anabranch.security.guard import Operation

OPERATIONS: Final[tuple[str, ...]] = get_args(Operation)
EVERYTHING: Final = "*"

BUILT_IN_ROLES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "reader": frozenset({"read"}),
        "writer": frozenset({"read", "write"}),
        "operator": frozenset({"read", "write", "create", "manage"}),
        "admin": frozenset({"read", "write", "create", "manage", "admin"}),
        "coder": frozenset({"code"}),
    }
)

_DOING: Final[Mapping[Operation, str]] = MappingProxyType(
    {
        "read": "read {}",
        "write": "write to {}",
        "create": "create {}",
        "manage": "change or delete {}",
        "admin": "administer {}",
        "code": "deploy Python code",
    }
)

_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9_.\-]*"
_PATTERN: Final = re.compile(rf"(\*|{_NAME}\*|{_NAME}/({_NAME})?\*?)\Z")
_PRINCIPAL: Final = re.compile(rf"[^\s\x00-\x1f\x7f]{{1,{limits.PRINCIPAL_CHARS_MAX}}}\Z")
_ROLE: Final = re.compile(r"[a-z0-9][a-z0-9_.\-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Rule:
    """Some operations on the names that a pattern matches: `*` matches all names and the store itself; `iot/` the scope
    and its streams; `iot/sens*` and `team-*` all names with this prefix; `iot/sensors` that stream."""

    operations: frozenset[str]
    on: str

    def allows(self, operation: str, resource: str | None) -> bool:
        """True if the rule allows the operation on `scope/stream`, on a scope `scope/`, or with None on the store.

        The store's own streams and scopes, whose names begin with an underscore, are open only to rules with the
        operation `admin`, and to rules whose pattern contains the underscore."""
        if operation not in self.operations:
            return False
        if resource is None:
            return self.on == EVERYTHING
        if not _matches(self.on, resource):
            return False
        return not is_internal(resource) or "admin" in self.operations or is_internal(self.on)


def _matches(pattern: str, name: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name.startswith(pattern) if pattern.endswith("/") else name == pattern


def refusal(principal: str, operation: Operation, resource: str | None, *, kept: bool) -> str:
    """The message for a caller who may not do an operation: the operation, the right that it requires, and who grants
    the right. With `kept`, no role grants it."""
    what = "the store" if resource is None else f"'{resource}'"
    refused = f"'{principal}' may not {_DOING[operation].format(what)}"
    if kept:
        return f"{refused}: only the store itself may, and no role allows it"
    role = next(name for name, allowed in BUILT_IN_ROLES.items() if operation in allowed)
    return f"{refused}: it requires the right '{operation}', which an administrator of the store grants (role '{role}')"


def is_internal(name: str) -> bool:
    """True for the name or pattern of the store's own scopes and streams."""
    return name.startswith("_") or "/_" in name


def check_pattern(text: str) -> str:
    """Return the pattern of names, `iot/*` as `iot/`. Raises InvalidArgument."""
    if not isinstance(text, str) or len(text) > 2 * limits.NAME_CHARS_MAX + 2 or not _PATTERN.match(text):
        raise InvalidArgument(
            f"'{text!s:.100}' is not a pattern of names: expected '*', a scope such as 'iot/', a stream such as 'iot/sensors', or the "
            "beginning of names such as 'iot/sens*'"
        )
    return text[:-1] if text.endswith("/*") else text


def check_operations(names: Iterable[str]) -> tuple[str, ...]:
    """Return the operations in their order, each once. Raises InvalidArgument."""
    listed = list(names)
    unknown = [name for name in listed if name not in OPERATIONS]
    if unknown:
        raise InvalidArgument(f"'{unknown[0]!s:.100}' is not an operation: expected {', '.join(OPERATIONS)}")
    return tuple(name for name in OPERATIONS if name in listed)


def check_principal(name: str) -> str:
    """Return the name of a principal. Raises InvalidArgument."""
    if not isinstance(name, str) or not _PRINCIPAL.match(name):
        raise InvalidArgument(
            f"{name!r:.100} is not the name of a principal: expected 1 to {limits.PRINCIPAL_CHARS_MAX} characters "
            "without spaces"
        )
    return name


def check_role(name: str) -> str:
    """Return the name of a role. Raises InvalidArgument."""
    if not isinstance(name, str) or not _ROLE.match(name):
        raise InvalidArgument(
            f"{name!r:.100} is not the name of a role: expected a-z, 0-9, then also '_', '-' and '.', at most 64 characters"
        )
    return name
