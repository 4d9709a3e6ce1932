"""Decides which rows of Parquet files, in which order, form a stream. Pure: the files' own metadata is the input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.model.ids import StreamId


class FilePiece(NamedTuple):
    """Rows `row <= r < row + rows` of a file. They are events of `stream`, at the positions from `start` on of a log or
    segment; `order` is the sort key of that log or segment. If `stream` is None, the rows are of no stream, and `order`
    is the sort key of the file."""

    file: str
    row: int
    rows: int
    stream: StreamId | None
    start: int
    order: int

    @property
    def stop(self) -> int:
        """The position after its last row."""
        return self.start + self.rows

    def behind(self, position: int) -> FilePiece:
        """The part of the piece at or after a position."""
        left = max(0, position - self.start)
        return self._replace(row=self.row + left, rows=self.rows - left, start=self.start + left)


class FilesFormNoStream(Exception):
    """The pieces form no stream. `file` is the offending file, or None if the files as a whole are the problem."""

    def __init__(self, file: str | None, why: str) -> None:
        super().__init__(why)
        self.file = file
        self.why = why


def in_order(pieces: Sequence[FilePiece], source: StreamId | None) -> list[list[FilePiece]]:
    """Order the pieces into runs, to be read one after another. Pieces of no stream are one run. For a stream, each log
    or segment is one run, in the order of their ids, which agrees with the order of every key's events. Rows that lie
    in two pieces are taken from the piece that begins first; of two that begin together, from the longer one. Pieces of
    other streams are left out. Raises FilesFormNoStream."""
    held = [piece for piece in pieces if piece.rows]
    if all(piece.stream is None for piece in pieces):
        if source is not None:
            raise FilesFormNoStream(None, f"the files hold no stream {source:016x}: no store has written them")
        if not held:
            raise FilesFormNoStream(None, "the files hold no rows")
        return [sorted(held, key=lambda piece: piece.order)]
    streams = sorted({piece.stream for piece in held if piece.stream is not None})
    if source is None and len(streams) == 1:
        source = streams[0]
    if source not in streams:
        names = ", ".join(f"{each:016x}" for each in streams)
        what = "the files hold several streams" if source is None else f"the files hold no stream {source:016x}"
        raise FilesFormNoStream(None, f"{what}; there are {names or 'none'}: choose one")
    runs: dict[int, list[FilePiece]] = {}
    # Among pieces that begin together, the longest comes first.
    for piece in sorted((p for p in held if p.stream == source), key=lambda p: (p.order, p.start, -p.rows, p.file)):
        _follow(runs.setdefault(piece.order, []), piece)
    return [runs[order] for order in sorted(runs)]


def _follow(run: list[FilePiece], piece: FilePiece) -> None:
    if not run:
        run.append(piece)
        return
    reached = run[-1].stop
    if piece.start > reached:
        raise FilesFormNoStream(
            piece.file, f"begins at position {piece.start}, but no file holds {reached} … {piece.start - 1}"
        )
    if piece.stop > reached:
        run.append(piece.behind(reached))
