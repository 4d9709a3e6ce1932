"""Reads sections in the bytes of a WebAssembly module, whose format is a list of sections: id, size, content."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.errors import InvalidArgument

_HEAD_BYTES = 8
_CUSTOM = 0
_CODE = 10
_LEB_BYTES_MAX = 5


def custom_section(code: bytes, name: str) -> bytes | None:
    """The content of the first custom section of this name; None if there is none. Raises InvalidArgument for sections
    that reach beyond the module's end."""
    for kind, at, stop in _sections(code):
        if kind == _CUSTOM:
            length, start = _number(code, at)
            if code[start : start + length] == name.encode():
                return code[start + length : stop]
    return None


def largest_function(code: bytes) -> int:
    """The bytes of the longest function; 0 without any. Raises InvalidArgument as `custom_section`."""
    largest = 0
    for kind, at, stop in _sections(code):
        if kind == _CODE:
            _, at = _number(code, at)
            while at < stop:
                size, at = _number(code, at)
                largest = max(largest, size)
                at += size
    return largest


def _sections(code: bytes) -> Iterator[tuple[int, int, int]]:
    """Of each section its kind, and where its content begins and ends."""
    at = _HEAD_BYTES
    while at < len(code):
        kind = code[at]
        size, at = _number(code, at + 1)
        if at + size > len(code):
            raise InvalidArgument("this is not a valid WebAssembly module: a section is longer than the module")
        yield kind, at, at + size
        at += size


def _number(code: bytes, at: int) -> tuple[int, int]:
    """An unsigned number in LEB128, and what follows it."""
    found = 0
    for place, byte in enumerate(code[at : at + _LEB_BYTES_MAX]):
        found |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return found, at + place + 1
    raise InvalidArgument("this is not a valid WebAssembly module: it ends within a section's head")
