"""Cutting what lies between two cuts into ranges of about equal bytes, at the edges of extents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from anabranch.catalog.port import Reading
from anabranch.core.stretch import Piece, Stretch
from anabranch.model.ids import LogId
from anabranch.model.segment_range import SegmentRange


class _Run(NamedTuple):
    """What of a segment one span holds; adding `shift` to a position gives the offset."""

    log: LogId
    start: int
    stop: int
    size: int
    shift: int


def slices(reading: Reading, stretch: Stretch, *, bytes_max: int, count_max: int) -> list[SegmentRange]:
    """All that a stretch holds, in reading order, in ranges of about `bytes_max`; of more where there would be more than
    about `count_max`. At least one for each segment that holds anything. Costs a few look-ups for each span and each
    range, whatever the number of extents."""
    runs = [(piece, _runs(reading, piece)) for piece in stretch.pieces if piece.segment.head < piece.stop]
    total = sum(run.size for _, of_piece in runs for run in of_piece)
    target = max(bytes_max, total // count_max + 1)
    return [each for piece, of_piece in runs for each in _cut(reading, piece, of_piece, target)]


def _runs(reading: Reading, piece: Piece) -> list[_Run]:
    found = []
    for span in piece.spans:
        assert span.stop is not None
        size = max(_bytes_before(reading, span.log, span.stop) - _bytes_before(reading, span.log, span.start), 0)
        found.append(_Run(span.log, span.start, span.stop, size, span.offset - span.start))
    return found


def _bytes_before(reading: Reading, log: LogId, position: int) -> int:
    # To the end of the extent that begins before it: what a span views is told to within an extent.
    extent = reading.extent_before(log, position)
    return 0 if extent is None else extent.size_end


def _cut(reading: Reading, piece: Piece, runs: Sequence[_Run], target: int) -> Iterator[SegmentRange]:
    size = sum(run.size for run in runs)
    count = max(1, -(-size // target))
    edges = [piece.segment.head]
    for number in range(1, count):
        edge = _edge(reading, runs, size * number // count)
        if edges[-1] < edge < piece.stop:
            edges.append(edge)
    edges.append(piece.stop)
    events = piece.stop - piece.segment.head
    for start, stop in pairwise(edges):
        yield SegmentRange(piece.segment.id, start, stop, size * (stop - start) // events)


def _edge(reading: Reading, runs: Sequence[_Run], weight: int) -> int:
    """The offset at the start of the extent in which about `weight` bytes lie behind the segment's first."""
    for run in runs:
        if weight < run.size:
            position = run.start + (run.stop - run.start) * weight // run.size
            extent = reading.extent_before(run.log, position + 1)
            return max(run.start, position if extent is None else extent.start) + run.shift
        weight -= run.size
    return runs[-1].stop + runs[-1].shift
