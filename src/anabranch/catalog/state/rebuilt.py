"""The times of the blobs that the last rebuild of the catalog reported without adding them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from anabranch.catalog.state.kind import StateKind, only_key, state_kind
from anabranch.model.ids import Micros

LAST: Final = "last"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The folder of the manifest that the catalog was rebuilt from. Blobs of no catalog that were begun from `start` to
    `end` are kept until they are released."""

    manifest: str
    start: Micros
    end: Micros


REBUILT: Final[StateKind[str, Rebuilt]] = state_kind(
    "rebuilt",
    by="`last`",
    key=only_key(LAST),
    value=Rebuilt,
    example=(
        LAST,
        Rebuilt(
            "manifests/00064a1b2c3d4e5f-0123456789abcdef01234567/",
            Micros(1_767_225_600_000_000),
            Micros(1_767_225_900_000_000),
        ),
    ),
)
