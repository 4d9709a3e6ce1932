"""The data keys of an encrypted store, each wrapped with a master key. This form can be read without any key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind
from anabranch.model.ids import Micros


@dataclass(frozen=True, slots=True)
class DataKeyRow:
    """A data key, wrapped with the master key `master`. `check` shows whether an unwrapped key is the right one: the
    hex of HMAC-SHA256 of `anabranch data key check` under it."""

    id: str
    master: str
    wrapped: bytes
    check: str
    created_at: Micros


def newest(rows: Iterable[DataKeyRow]) -> DataKeyRow:
    """The data key that encrypts new bytes. `rows` must not be empty."""
    return max(rows, key=lambda row: (row.created_at, row.id))


DATA_KEY: Final[StateKind[str, DataKeyRow]] = state_kind(
    "data_key",
    by="the id of the key, 16 hex digits",
    key=TEXT_KEY,
    value=DataKeyRow,
    identity=lambda row: row.id,
    example=(
        "9c1b5e0f3a7d2846",
        DataKeyRow("9c1b5e0f3a7d2846", "2026-a", b"wrapped bytes", "5b" * 32, Micros(1_767_225_600_000_000)),
    ),
)
