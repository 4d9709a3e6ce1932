"""SQL expressions that compute a row's segment and offset from its file's name and its row number in the file.

Spark evaluates them for each row, and only in queries that use these columns. Comparisons distinguish a few pieces.
For many files these would be too large for Java to compile; then a checksum of the name is the index into an array.

Spark's hidden column `_metadata`, the usual way to a row's number and file, is not used. Once it is in a plan, every
scan produces all its seven fields, even if the query needs none (a count took 1.5 times as long). Instead the row
number comes from the internal column behind it, which the Parquet reader generates when a schema names it, and the name
from `input_file_name()`. Both disappear from plans that do not use them. The cost: in queries that use them, Spark does
not push filters of other columns below them, because it treats `input_file_name()` as nondeterministic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple
from urllib.parse import unquote
from zlib import crc32

from anabranch.spark.source.history import HistoryPiece, NativeFile

__all__ = [
    "COMPARED_MAX",
    "HASHED_MAX",
    "NAME",
    "NAME_SQL",
    "ROW",
    "RowPlaces",
    "by_comparison",
    "by_file_name",
    "by_hash",
    "in_pieces",
]

COMPARED_MAX: Final = 32  # pieces distinguished by comparisons in one scan
HASHED_MAX: Final = 256  # files distinguished by look-up in one scan

# Columns of the scan that the expressions use.
ROW: Final = "_tmp_metadata_row_index"
NAME: Final = "_anabranch_file_name"
NAME_SQL: Final = f"input_file_name() as {NAME}"

Placed = tuple[str, Sequence[HistoryPiece]]  # a file, by Spark's name for it, and its pieces to read


class RowPlaces(NamedTuple):
    """SQL expressions for a row's segment (packed) and its offset, both bigint."""

    segment: str
    offset: str


def by_file_name(files: Sequence[NativeFile], names: Iterable[str]) -> list[Placed]:
    """The files by their full names, as in `DataFrame.inputFiles`. Comparing full names avoids extracting the last part
    of a name for each row, which would cost more than everything else."""
    by_last: dict[str, list[str]] = {}
    for name in names:
        by_last.setdefault(unquote(name.rpartition("/")[2]), []).append(name)
    return [(_named(file.path, by_last[file.key.rpartition("/")[2]]), file.pieces) for file in files]


def _named(path: str, names: Sequence[str]) -> str:
    """The name that belongs to the path: attached files in different folders may share the last part of their names."""
    if len(names) == 1:
        return names[0]
    whole = path.partition("://")[2] or path
    # The shortest: the names of files in other folders may end with the whole path too, as /backup/data/a does with /data/a.
    return min((name for name in names if unquote(name).endswith(whole)), key=len)


def by_comparison(files: Sequence[Placed]) -> RowPlaces:
    """Expressions by comparisons: for each row, as many as the logarithm of the number of pieces."""

    def decide(value: Callable[[HistoryPiece], int]) -> str:
        rows = {name: _tree(ROW, [(str(p.row), f"{value(p)}L") for p in pieces]) for name, pieces in files}
        return _by_name(rows)

    return RowPlaces(decide(lambda piece: piece.segment.packed), f"{ROW} + {decide(lambda piece: piece.shift)}")


def by_hash(files: Sequence[Placed]) -> RowPlaces:
    """Expressions by array look-up. Every file must have one piece."""
    assert all(len(pieces) == 1 for _, pieces in files)
    sums = {crc32(name.encode()): pieces[0] for name, pieces in files}
    if len(sums) < len(files):  # two names share a checksum, which is rare: use comparisons
        return by_comparison(files)
    slots = next(m for m in count(len(sums)) if len({each % m for each in sums}) == len(sums))
    at = f"cast(crc32({NAME}) % {slots} as int)"

    def look_up(value: Callable[[HistoryPiece], int]) -> str:
        values = [0] * slots
        for each, piece in sums.items():
            values[each % slots] = value(piece)
        return f"from_json('{values}', 'array<bigint>')[{at}]"

    return RowPlaces(look_up(lambda piece: piece.segment.packed), f"{ROW} + {look_up(lambda piece: piece.shift)}")


def in_pieces(files: Sequence[Placed]) -> str:
    """An SQL condition that is true for the rows of these files' pieces."""
    return _by_name({name: _rows_wanted(pieces) for name, pieces in files})


def _rows_wanted(pieces: Sequence[HistoryPiece]) -> str:
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
    """An expression for the value of the last leaf whose edge is at or below `what`, as a binary search. Leaves are
    (edge, value) with ascending edges."""
    if len(leaves) == 1:
        return leaves[0][1]
    half = len(leaves) // 2
    return f"if({what} < {leaves[half][0]}, {_tree(what, leaves[:half])}, {_tree(what, leaves[half:])})"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
