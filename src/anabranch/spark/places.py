"""SQL that tells a row's segment and offset from its file's name and its number in the file.

It is evaluated for each row, and only where a query asks for these columns. A few pieces are told apart by comparisons.
Many files would make these too large for Java to compile, so then the name's checksum looks up an array.

The plain way to a row's number and file, Spark's hidden column `_metadata`, is not used: once it stands in a plan, every
scan produces all seven fields of it, also where the query needs none (a count took half as long again). So the number
comes from the column that stands behind it, which the Parquet reader makes up when a schema names it, and the name from
`input_file_name()`. Both vanish from plans that do not use them. The price: where they are used, Spark does not push
filters of other columns below them, since it takes `input_file_name()` for a matter of chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import unquote
from zlib import crc32

from anabranch.spark.history import File, Piece

__all__ = [
    "COMPARED_MAX",
    "HASHED_MAX",
    "NAME",
    "NAME_SQL",
    "ROW",
    "Places",
    "compared",
    "hashed",
    "in_pieces",
    "placed",
]

COMPARED_MAX: Final = 32  # pieces told apart by comparisons in one scan
HASHED_MAX: Final = 256  # files told apart by look-up in one scan

# Columns of the scan that the expressions are made of.
ROW: Final = "_tmp_metadata_row_index"
NAME: Final = "_anabranch_file_name"
NAME_SQL: Final = f"input_file_name() as {NAME}"

Placed = tuple[str, Sequence[Piece]]  # a file, by the name that Spark has for it, and what is wanted of it


class Places(NamedTuple):
    """Expressions for a row's segment (packed) and its offset, both bigint."""

    segment: str
    offset: str


def placed(files: Sequence[File], names: Iterable[str]) -> list[Placed]:
    """The files by their whole names, which are those of `DataFrame.inputFiles`. Cutting the last part out of a name
    for each row would cost more than everything else."""
    by_last: dict[str, list[str]] = {}
    for name in names:
        by_last.setdefault(unquote(name.rpartition("/")[2]), []).append(name)
    return [(_named(file.path, by_last[file.key.rpartition("/")[2]]), file.pieces) for file in files]


def _named(path: str, names: Sequence[str]) -> str:
    """The name that is the path's: attached files of two folders may end alike."""
    if len(names) == 1:
        return names[0]
    whole = path.partition("://")[2] or path
    return next(name for name in names if unquote(name).endswith(whole))


def compared(files: Sequence[Placed]) -> Places:
    """By comparisons, as many for each row as the logarithm of the number of pieces."""

    def decide(value: Callable[[Piece], int]) -> str:
        rows = {name: _tree(ROW, [(str(p.row), _long(value(p))) for p in pieces]) for name, pieces in files}
        return _by_name(rows)

    return Places(decide(lambda piece: piece.segment.packed), f"{ROW} + {decide(lambda piece: piece.shift)}")


def hashed(files: Sequence[Placed]) -> Places:
    """By look-up. Every file has one piece."""
    assert all(len(pieces) == 1 for _, pieces in files)
    sums = {crc32(name.encode()): pieces[0] for name, pieces in files}
    if len(sums) < len(files):  # two names of one checksum are as rare as they are harmless
        return compared(files)
    slots = next(m for m in count(len(sums)) if len({each % m for each in sums}) == len(sums))
    at = f"cast(crc32({NAME}) % {slots} as int)"

    def look_up(value: Callable[[Piece], int]) -> str:
        values = [0] * slots
        for each, piece in sums.items():
            values[each % slots] = value(piece)
        return f"from_json('{values}', 'array<bigint>')[{at}]"

    return Places(look_up(lambda piece: piece.segment.packed), f"{ROW} + {look_up(lambda piece: piece.shift)}")


def in_pieces(files: Sequence[Placed]) -> str:
    """A condition that holds for the wanted rows of these files."""
    return _by_name({name: _rows_wanted(pieces) for name, pieces in files})


def _rows_wanted(pieces: Sequence[Piece]) -> str:
    runs: list[list[int]] = []
    for piece in pieces:
        if runs and runs[-1][1] == piece.row:
            runs[-1][1] = piece.stop
        else:
            runs.append([piece.row, piece.stop])
    return "(" + " or ".join(f"({ROW} >= {row} and {ROW} < {stop})" for row, stop in runs) + ")"


def _by_name(values: Mapping[str, str]) -> str:
    return _tree(NAME, [(_text(name), value) for name, value in sorted(values.items())])


def _tree(what: str, leaves: Sequence[tuple[str, str]]) -> str:
    """The value of the last leaf whose edge is at or before `what`, by halving; edges rise."""
    if len(leaves) == 1:
        return leaves[0][1]
    half = len(leaves) // 2
    return f"if({what} < {leaves[half][0]}, {_tree(what, leaves[:half])}, {_tree(what, leaves[half:])})"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _long(value: int) -> str:
    return f"{value}L"
