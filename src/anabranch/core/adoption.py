"""Which rows of Parquet files, in which order, are a stream. Pure: what the files tell of themselves comes in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.model.ids import StreamId


class Piece(NamedTuple):
    """Rows `row <= r < row + rows` of a file. `stream` wrote them at the positions from `start` on of a log or segment
    whose place among the others is `order`; None: no stream did, and `order` is that of the files."""

    file: str
    row: int
    rows: int
    stream: StreamId | None
    start: int
    order: int

    @property
    def stop(self) -> int:
        """The position behind its last row."""
        return self.start + self.rows

    def behind(self, position: int) -> Piece:
        """What of it lies at or behind a position."""
        left = max(0, position - self.start)
        return self._replace(row=self.row + left, rows=self.rows - left, start=self.start + left)


class Unplaced(Exception):
    """The pieces make no stream: because of a `file`, or None where more must be said."""

    def __init__(self, file: str | None, why: str) -> None:
        super().__init__(why)
        self.file = file
        self.why = why


def in_order(pieces: Sequence[Piece], source: StreamId | None) -> list[list[Piece]]:
    """Runs of pieces, to be read one run after another. Pieces of no stream are one run; of a stream, each log or
    segment is one, in the order of their ids, which no event of a key goes against. What lies in two files is taken
    from the longer one. Raises Unplaced."""
    held = [piece for piece in pieces if piece.rows]
    if all(piece.stream is None for piece in pieces):
        if source is not None:
            raise Unplaced(None, f"the files hold no stream {source:016x}: no store has written them")
        if not held:
            raise Unplaced(None, "the files hold no rows")
        return [sorted(held, key=lambda piece: piece.order)]
    streams = sorted({piece.stream for piece in held if piece.stream is not None})
    if source is None and len(streams) == 1:
        source = streams[0]
    if source not in streams:
        known = ", ".join(f"{each:016x}" for each in streams)
        what = "the files hold several streams" if source is None else f"the files hold no stream {source:016x}"
        raise Unplaced(None, f"{what}; there are {known or 'none'}: say which is meant")
    runs: dict[int, list[Piece]] = {}
    # Of pieces that begin together, the longest first.
    for piece in sorted((p for p in held if p.stream == source), key=lambda p: (p.order, p.start, -p.rows, p.file)):
        _follow(runs.setdefault(piece.order, []), piece)
    return [runs[order] for order in sorted(runs)]


def _follow(run: list[Piece], piece: Piece) -> None:
    if not run:
        run.append(piece)
        return
    reached = run[-1].stop
    if piece.start > reached:
        raise Unplaced(piece.file, f"begins at position {piece.start}, but no file holds {reached} … {piece.start - 1}")
    if piece.stop > reached:
        run.append(piece.behind(reached))
