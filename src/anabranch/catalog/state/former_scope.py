"""The current name of a scope, by a former name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind


@dataclass(frozen=True, slots=True)
class FormerScope:
    """The scope's current name."""

    to: str


FORMER_SCOPE: Final[StateKind[str, FormerScope]] = state_kind(
    "former_scope",
    by="the former name",
    found_by="the current name",
    key=TEXT_KEY,
    value=FormerScope,
    lookup=lambda _name, scope: scope.to,
    example=("sensors", FormerScope("iot")),
)
