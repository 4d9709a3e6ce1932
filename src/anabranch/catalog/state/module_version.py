"""WebAssembly modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from anabranch.catalog.state.codec import bytes_member, codec_of
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, parts_key, state_kind, versioned
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
    about="The versions of WebAssembly modules; the highest number of a module is the one that queries use.",
    by="the module's name, `/`, and the version's number, 8 digits",
    key=parts_key(ModuleKey, "{}/{:08}", str, int),
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


MODULE_CODE: Final[StateKind[str, bytes]] = state_kind(
    "module_code",
    about="The code of WebAssembly modules, once for all versions that have the same.",
    by="the SHA-256 of the code, in hex",
    key=TEXT_KEY,
    value=versioned(bytes_member("code"), FORMAT, "module's code"),
    example=("93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476", b"\0asm\1\0\0\0"),
)
