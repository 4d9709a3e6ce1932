"""The versions of WebAssembly modules; the highest number of a module is the one that queries use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import codec_of
from anabranch.catalog.state.kind import StateKind, numbered_key, state_kind, versioned
from anabranch.model.ids import Micros

FORMAT: Final = 1


class ModuleKey(NamedTuple):
    """The `number`th version of a module, from 1 on."""

    module: str
    number: int


@dataclass(frozen=True, slots=True)
class ModuleVersion:
    """A module as of one `add`: the signatures of its functions, and its code by the SHA-256 of its bytes, in hex."""

    module: str
    number: int
    digest: str
    size: int
    functions: tuple[str, ...]
    created_at: Micros


def module_prefix(module: str) -> str:
    """How the keys of all versions of a module begin."""
    return f"{module}/"


MODULE_VERSION: Final[StateKind[ModuleKey, ModuleVersion]] = state_kind(
    "module_version",
    by="the module's name, `/`, and the version's number, 8 digits",
    key=numbered_key(ModuleKey, lambda key: key),
    value=versioned(codec_of(ModuleVersion), FORMAT, "version of a module"),
    identity=lambda version: ModuleKey(version.module, version.number),
    example=(
        ModuleKey("heat", 1),
        ModuleVersion(
            "heat",
            1,
            "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7",
            512,
            ("score(celsius double) -> double",),
            Micros(1_767_225_660_000_000),
        ),
    ),
)
