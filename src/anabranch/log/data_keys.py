"""Data keys as the catalog keeps them, which can be read without any key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.catalog.port import Checkpointed
from anabranch.errors import CorruptCatalog
from anabranch.model.ids import Micros

KIND: Final = "data_key"


@dataclass(frozen=True, slots=True)
class Row:
    """A data key, wrapped with the master key `master`. `check` tells a wrong key from the right one."""

    id: str
    master: str
    wrapped: bytes
    check: str
    created_at: Micros


def newest(rows: Iterable[Row]) -> Row:
    """The data key that seals new bytes, of at least one."""
    return max(rows, key=lambda row: (row.created_at, row.id))


def to_piece(row: Row) -> Checkpointed:
    """The catalog's form of a row."""
    wrapped = base64.b64encode(row.wrapped).decode()
    value = {"master": row.master, "wrapped": wrapped, "check": row.check, "created_at": row.created_at}
    return Checkpointed(KIND, row.id, value)


def from_piece(piece: Checkpointed) -> Row:
    """The inverse of `to_piece`. Raises CorruptCatalog."""
    value = piece.value
    try:
        wrapped = base64.b64decode(str(value["wrapped"]), validate=True)
        created_at = Micros(int(str(value["created_at"])))
        return Row(piece.name, str(value["master"]), wrapped, str(value["check"]), created_at)
    except (KeyError, ValueError, binascii.Error) as exc:
        raise CorruptCatalog(f"the data key {piece.name} of the catalog can't be understood") from exc
