"""Who may do what: tokens, roles and bindings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, only_key, state_kind
from anabranch.model.ids import Micros

_ID: Final = re.compile(r"[0-9a-f]{12}\Z")


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token of `principal`. `sha256` is the hex of the SHA-256 of its text. `roles` and `operations` are what it may do
    on the names that match `on`; without any of these it may do what its principal's roles allow. `expires_at` None: it
    does not expire."""

    id: str
    principal: str
    sha256: str
    roles: tuple[str, ...]
    operations: tuple[str, ...]
    on: tuple[str, ...]
    created_at: Micros
    expires_at: Micros | None

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise ValueError("expected the id of a token as 12 hex digits")


ACCESS_TOKEN: Final[StateKind[str, TokenRow]] = state_kind(
    "access_token",
    about="Tokens by which callers of a broker are known. The token itself is stored nowhere, only its SHA-256.",
    by="the token's id, 12 hex digits",
    key=TEXT_KEY,
    value=TokenRow,
    identity=lambda row: row.id,
    example=(
        "0a1b2c3d4e5f",
        TokenRow(
            "0a1b2c3d4e5f",
            "dashboard",
            "5b" * 32,
            ("reader",),
            (),
            ("iot/",),
            Micros(1_767_225_600_000_000),
            Micros(1_775_001_600_000_000),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A role: a name for some operations."""

    name: str
    operations: tuple[str, ...]


ACCESS_ROLE: Final[StateKind[str, RoleRow]] = state_kind(
    "access_role",
    about="Roles that the store's admins defined, besides the built-in ones.",
    by="the role's name",
    key=TEXT_KEY,
    value=RoleRow,
    identity=lambda row: row.name,
    example=("loader", RoleRow("loader", ("write", "create"))),
)


class BoundRole(NamedTuple):
    """A role, and the names that it is bound on: `*`, `iot/`, `iot/sens*` or `iot/sensors`."""

    role: str
    on: str


@dataclass(frozen=True, slots=True)
class BindingRow:
    """The roles of a principal, sorted."""

    principal: str
    roles: tuple[BoundRole, ...]


ACCESS_BINDING: Final[StateKind[str, BindingRow]] = state_kind(
    "access_binding",
    about="Which roles a principal has, and on which streams.",
    by="the principal's name",
    key=TEXT_KEY,
    value=BindingRow,
    identity=lambda row: row.principal,
    example=("dashboard", BindingRow("dashboard", (BoundRole("reader", "iot/"), BoundRole("writer", "iot/alarms")))),
)


ONLY: Final = "version"


@dataclass(frozen=True, slots=True)
class AccessVersion:
    """`changes` counts from 1. Without a row nothing was ever changed."""

    changes: int


ACCESS_VERSION: Final[StateKind[str, AccessVersion]] = state_kind(
    "access_version",
    about="How often tokens, roles and bindings have changed, so that brokers look at them only after a change.",
    key=only_key(ONLY),
    value=AccessVersion,
    example=(ONLY, AccessVersion(7)),
)
