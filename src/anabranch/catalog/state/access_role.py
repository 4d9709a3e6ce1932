"""Roles that the store's admins defined, besides the built-in ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind


@dataclass(frozen=True, slots=True)
class RoleRow:
    """A role: a name for some operations."""

    name: str
    operations: tuple[str, ...]


ACCESS_ROLE: Final[StateKind[str, RoleRow]] = state_kind(
    "access_role",
    by="the role's name",
    key=TEXT_KEY,
    value=RoleRow,
    identity=lambda row: row.name,
    example=("loader", RoleRow("loader", ("write", "create"))),
)
