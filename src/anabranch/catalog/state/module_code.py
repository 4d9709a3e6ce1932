"""The code of WebAssembly modules, once for all versions that have the same."""

from __future__ import annotations

from typing import Final

from anabranch.catalog.state.codec import bytes_member
from anabranch.catalog.state.kind import TEXT_KEY, StateKind, state_kind, versioned

FORMAT: Final = 1

MODULE_CODE: Final[StateKind[str, bytes]] = state_kind(
    "module_code",
    by="the SHA-256 of the code, in hex",
    key=TEXT_KEY,
    value=versioned(bytes_member("code"), FORMAT, "module's code"),
    example=("93a44bbb96c751218e4c00d479e4c14358122a389acca16205b1e4d0dc5f9476", b"\0asm\1\0\0\0"),
)
