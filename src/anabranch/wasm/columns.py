"""The types of columns that modules can take and return, and their layout in a module's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.model.columns import TIME_TYPE

BOOLEAN: Final = pa.bool_()
_NAMES: Final[Mapping[pa.DataType, tuple[str, int]]] = {
    BOOLEAN: ("boolean", 1),
    pa.int8(): ("int8", 1),
    pa.int16(): ("int16", 2),
    pa.int32(): ("int32", 4),
    pa.int64(): ("int64", 8),
    pa.uint8(): ("uint8", 1),
    pa.uint16(): ("uint16", 2),
    pa.uint32(): ("uint32", 4),
    pa.uint64(): ("uint64", 8),
    pa.float32(): ("float32", 4),
    pa.float64(): ("double", 8),
    TIME_TYPE: ("timestamp", 8),
    pa.date32(): ("date", 4),
    pa.string(): ("string", 0),
    pa.binary(): ("binary", 0),
}
"""The name of each type in signatures, and the bytes of a value; 0 for those of varying length."""

NAMES: Final = tuple(name for name, _ in _NAMES.values())


def name_of(kind: pa.DataType) -> str | None:
    """The type's name in signatures; None for a type that modules can't use."""
    found = _NAMES.get(kind)
    return None if found is None else found[0]


def width_of(kind: pa.DataType) -> int:
    """Bytes of a value in a module's memory; 0 for text and binaries."""
    return _NAMES[kind][1]


@dataclass(frozen=True, slots=True)
class Laid:
    """A column as it lies in a module's memory. `validity` is None if no value is null."""

    values: bytes | pa.Buffer
    offsets: bytes | None
    validity: bytes | None


def lay_out(column: pa.Array) -> Laid:
    """The bytes of a column. Booleans take a byte each; offsets begin at 0."""
    rows, at = len(column), column.offset
    bits, *buffers = column.buffers()
    validity = None if not column.null_count else _bits(bits, at, rows)
    width = width_of(column.type)
    if column.type == BOOLEAN:
        return Laid(_unpacked(buffers[0], at, rows).tobytes(), None, validity)
    if width:
        return Laid(buffers[0].slice(at * width, rows * width) if rows else b"", None, validity)
    if not rows:
        return Laid(b"", bytes(4), None)
    offsets = np.frombuffer(buffers[0], np.int32, rows + 1, at * 4)
    first, last = int(offsets[0]), int(offsets[-1])
    values = b"" if first == last else buffers[1].slice(first, last - first)
    return Laid(values, (offsets - first).tobytes(), validity)


def taken(kind: pa.DataType, rows: int, values: bytes, offsets: bytes | None, validity: bytes | None) -> pa.Array:
    """A column made from the memory that a module wrote. Raises ValueError for offsets that don't rise, or text that is
    not UTF-8."""
    bits = None if validity is None else pa.py_buffer(validity)
    if kind == BOOLEAN:
        packed = np.packbits(np.frombuffer(values, np.uint8) != 0, bitorder="little").tobytes()
        return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(packed)])
    if offsets is None:
        return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(values)])
    column = pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(offsets), pa.py_buffer(values)])
    column.validate(full=True)
    return column


def both(first: bytes | None, second: bytes | None) -> bytes | None:
    """The rows that are valid in both bitmaps; None stands for all rows."""
    if first is None or second is None:
        return first or second
    return (np.frombuffer(first, np.uint8) & np.frombuffer(second, np.uint8)).tobytes()


def _bits(buffer: pa.Buffer, at: int, rows: int) -> bytes:
    """The bits from `at` on, so that the first is the lowest of the first byte. What follows the last one is 0."""
    return np.packbits(_unpacked(buffer, at, rows), bitorder="little").tobytes()


def _unpacked(buffer: pa.Buffer, at: int, rows: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    start = at // 8
    held = np.frombuffer(buffer, np.uint8, -(-(at + rows) // 8) - start, start)
    return np.unpackbits(held, bitorder="little")[at % 8 : at % 8 + rows]
