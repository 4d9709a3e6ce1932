"""Finds a custom section in the bytes of a WebAssembly module, whose format is a list of sections: id, size, content."""

from __future__ import annotations

from anabranch.errors import InvalidArgument

_HEAD_BYTES = 8
_CUSTOM = 0
_LEB_BYTES_MAX = 5


def custom_section(code: bytes, name: str) -> bytes | None:
    """The content of the first custom section of this name; None if there is none. Raises InvalidArgument for sections
    that reach beyond the module's end."""
    at = _HEAD_BYTES
    while at < len(code):
        kind = code[at]
        size, at = _number(code, at + 1)
        if at + size > len(code):
            raise InvalidArgument("this is not a valid WebAssembly module: a section is longer than the module")
        if kind == _CUSTOM:
            length, start = _number(code, at)
            if code[start : start + length] == name.encode():
                return code[start + length : at + size]
        at += size
    return None


def _number(code: bytes, at: int) -> tuple[int, int]:
    """An unsigned number in LEB128, and what follows it."""
    found = 0
    for place, byte in enumerate(code[at : at + _LEB_BYTES_MAX]):
        found |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return found, at + place + 1
    raise InvalidArgument("this is not a valid WebAssembly module: it ends within a section's head")
