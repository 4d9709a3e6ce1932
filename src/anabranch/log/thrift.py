"""The compact protocol of Thrift, as far as Parquet's metadata needs it: structs as they lie in bytes, and back.

Nothing here knows what a field means, so fields that were invented later are kept as they are. Source:
github.com/apache/thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Struct: TypeAlias = dict[int, "tuple[int, Any]"]
"""Fields by id, each with its type and value: numbers, bytes, lists as (type of elements, elements), structs."""

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12

_NUMBERS: Final = (I16, I32, I64)
_LONG: Final = 15  # a size or step that does not fit into half a byte


def read_struct(data: bytes, at: int = 0) -> tuple[Struct, int]:
    """The struct that begins at a byte, and where it ends. Raises ValueError, IndexError for what is none."""
    found: Struct = {}
    field = 0
    while (head := data[at]) != 0:
        at += 1
        kind, step = head & 0x0F, head >> 4
        if step:
            field += step
        else:
            field, at = _read_number(data, at)
        value, at = _read(data, at, kind)
        found[field] = (kind, value)
    return found, at + 1


def write_struct(struct: Struct) -> bytes:
    """The inverse of `read_struct`."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _read(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _read_number(data, at)
    if kind == BINARY:
        size, at = read_varint(data, at)
        return data[at : at + size], at + size
    if kind == STRUCT:
        return read_struct(data, at)
    if kind in (LIST, SET):
        of_elements, count = data[at] & 0x0F, data[at] >> 4
        at += 1
        if count == _LONG:
            count, at = read_varint(data, at)
        elements = []
        for _ in range(count):
            element, at = _element(data, at, of_elements)
            elements.append(element)
        return (of_elements, elements), at
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return data[at : at + 8], at + 8
    raise ValueError(f"a field of type {kind}")


def _element(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    return (data[at], at + 1) if kind in (TRUE, FALSE) else _read(data, at, kind)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A length at a place of the data, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    number, at = read_varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _write_struct(out: bytearray, struct: Struct) -> None:
    before = 0
    for field in sorted(struct):
        kind, value = struct[field]
        if kind in (TRUE, FALSE):
            kind = TRUE if value else FALSE
        step = field - before
        if 0 < step < _LONG + 1:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _write_number(out, field)
        _write(out, kind, value)
        before = field
    out.append(0)


def _write(out: bytearray, kind: int, value: Any) -> None:
    if kind in _NUMBERS:
        _write_number(out, value)
    elif kind == BINARY:
        write_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _write_struct(out, value)
    elif kind in (LIST, SET):
        of_elements, elements = value
        if len(elements) < _LONG:
            out.append(len(elements) << 4 | of_elements)
        else:
            out.append(_LONG << 4 | of_elements)
            write_varint(out, len(elements))
        for element in elements:
            if of_elements in (TRUE, FALSE):
                out.append(element)
            else:
                _write(out, of_elements, element)
    elif kind == BYTE:
        out.append(value)
    elif kind == DOUBLE:
        out += value


def write_varint(out: bytearray, number: int) -> None:
    """Write a length behind what is there."""
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_number(out: bytearray, number: int) -> None:
    write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
