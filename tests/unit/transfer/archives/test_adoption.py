"""Which rows of Parquet files are a stream, and in which order."""

from __future__ import annotations

import pytest

from anabranch.model.ids import StreamId
from anabranch.transfer.archives.file_order import FilePiece, FilesFormNoStream, in_order

A, B = StreamId(1), StreamId(2)


def told(runs: list[list[FilePiece]]) -> list[list[tuple[str, int, int]]]:
    return [[(piece.file, piece.row, piece.rows) for piece in run] for run in runs]


def test_files_of_no_store_follow_each_other() -> None:
    pieces = [FilePiece("b", 0, 2, None, 0, 1), FilePiece("a", 0, 3, None, 0, 0), FilePiece("c", 0, 0, None, 0, 2)]
    assert told(in_order(pieces, None)) == [[("a", 0, 3), ("b", 0, 2)]]


def test_logs_follow_in_the_order_of_their_ids_and_their_positions() -> None:
    pieces = [FilePiece("x", 5, 2, A, 10, 7), FilePiece("y", 0, 3, A, 0, 3), FilePiece("x", 0, 5, A, 5, 7)]
    assert told(in_order(pieces, None)) == [[("y", 0, 3)], [("x", 0, 5), ("x", 5, 2)]]


def test_what_two_files_hold_is_taken_once() -> None:
    pieces = [
        FilePiece("small", 0, 3, A, 0, 1),
        FilePiece("merged", 0, 8, A, 0, 1),
        FilePiece("inside", 0, 2, A, 4, 1),
        FilePiece("over", 10, 6, A, 6, 1),
    ]
    assert told(in_order(pieces, None)) == [[("merged", 0, 8), ("over", 12, 4)]]


def test_positions_that_no_file_holds_are_reported_with_the_file_behind_them() -> None:
    with pytest.raises(FilesFormNoStream, match=r"begins at position 5, but no file holds 3 … 4") as refused:
        in_order([FilePiece("a", 0, 3, A, 0, 1), FilePiece("b", 0, 3, A, 5, 1)], None)
    assert refused.value.file == "b"


def test_one_of_several_streams_must_be_said() -> None:
    pieces = [FilePiece("a", 0, 3, A, 0, 1), FilePiece("a", 3, 3, B, 0, 2)]
    with pytest.raises(FilesFormNoStream, match=f"{A:016x}, {B:016x}: choose one"):
        in_order(pieces, None)
    assert told(in_order(pieces, B)) == [[("a", 3, 3)]]
    with pytest.raises(FilesFormNoStream, match="hold no stream"):
        in_order(pieces, StreamId(9))
    with pytest.raises(FilesFormNoStream, match="no store has written them"):
        in_order([FilePiece("a", 0, 3, None, 0, 0)], A)
    with pytest.raises(FilesFormNoStream, match="no rows"):
        in_order([FilePiece("a", 0, 0, None, 0, 0)], None)
