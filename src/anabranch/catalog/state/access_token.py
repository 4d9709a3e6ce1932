"""Tokens by which callers of a broker are known. The token itself is stored nowhere, only its SHA-256."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind
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
