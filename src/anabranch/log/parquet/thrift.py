"""Thrift's compact protocol, as far as Parquet's metadata needs it: reads structs from bytes and writes them.

Nothing here knows the meaning of a field, so fields of later versions are kept unchanged. Source:
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
DEPTH_MAX: Final = 64  # Parquet's metadata has fewer than ten levels
_SHIFT_MAX: Final = 63
_LONG: Final = 15  # marks a size or step that does not fit into half a byte


def read_struct(data: bytes, at: int = 0, *, depth: int = 0) -> tuple[Struct, int]:
    """The struct that begins at byte `at`, and the byte after it. Raises ValueError or IndexError if there is none, or
    if it is nested more deeply than `DEPTH_MAX`."""
    if depth > DEPTH_MAX:
        raise ValueError(f"its structs are nested more than {DEPTH_MAX} deep")
    found: Struct = {}
    field = 0
    while (head := data[at]) != 0:
        at += 1
        kind, step = head & 0x0F, head >> 4
        if step:
            field += step
        else:
            field, at = _read_number(data, at)
        value, at = _read(data, at, kind, depth)
        found[field] = (kind, value)
    return found, at + 1


def write_struct(struct: Struct) -> bytes:
    """The inverse of `read_struct`."""
    out = bytearray()
    _write_struct(out, struct)
    return bytes(out)


def _read(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in _NUMBERS:
        return _read_number(data, at)
    if kind == BINARY:
        size, at = read_varint(data, at)
        return _bytes(data, at, size)
    if kind == STRUCT:
        return read_struct(data, at, depth=depth + 1)
    if kind in (LIST, SET):
        of_elements, count = data[at] & 0x0F, data[at] >> 4
        at += 1
        if count == _LONG:
            count, at = read_varint(data, at)
        if count > len(data) - at:  # each element takes at least a byte
            raise ValueError(f"a list of {count} elements does not fit into the remaining bytes")
        if depth >= DEPTH_MAX:
            raise ValueError(f"its lists are nested more than {DEPTH_MAX} deep")
        elements = []
        for _ in range(count):
            element, at = _element(data, at, of_elements, depth + 1)
            elements.append(element)
        return (of_elements, elements), at
    if kind in (TRUE, FALSE):
        return kind == TRUE, at
    if kind == BYTE:
        return data[at], at + 1
    if kind == DOUBLE:
        return _bytes(data, at, 8)
    raise ValueError(f"a field of type {kind}")


def _bytes(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    if size > len(data) - at:
        raise ValueError(f"{size} bytes are more than the remaining ones")
    return data[at : at + size], at + size


def _element(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    return (data[at], at + 1) if kind in (TRUE, FALSE) else _read(data, at, kind, depth)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The length stored at byte `at`, and the byte after it. Raises ValueError or IndexError if there is none."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > _SHIFT_MAX:
            raise ValueError("a number of more than 64 bits")


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
    """Appends a length to `out`."""
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _write_number(out: bytearray, number: int) -> None:
    write_varint(out, number << 1 if number >= 0 else (-number << 1) - 1)
