"""Which roles a principal has, and on which streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind


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
    by="the principal's name",
    key=TEXT_KEY,
    value=BindingRow,
    identity=lambda row: row.principal,
    example=("dashboard", BindingRow("dashboard", (BoundRole("reader", "iot/"), BoundRole("writer", "iot/alarms")))),
)
