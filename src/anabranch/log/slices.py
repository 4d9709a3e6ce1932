"""Splits what lies between two cuts into ranges of about equal bytes, at the edges of extents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from anabranch.catalog.port import Reading
from anabranch.core.stream_slice import SegmentSlice, StreamSlice
from anabranch.model.ids import LogId
from anabranch.model.segment_range import SegmentRange

_SLACK: Final = 8  # an edge may be off by a range's size divided by this, which saves look-ups


class _SliceRun(NamedTuple):
    """The part of a segment that one span holds, between two places of a log. Position + `shift` = offset."""

    log: LogId
    start: _Place
    stop: _Place
    shift: int

    @property
    def size(self) -> int:
        return self.stop.size - self.start.size


class _Place(NamedTuple):
    """A position, and the number of logical bytes before it."""

    position: int
    size: int


def split_slice(reading: Reading, stream_slice: StreamSlice, *, bytes_max: int, count_max: int) -> list[SegmentRange]:
    """Everything that a stream slice holds, in reading order, in ranges of about `bytes_max`; in larger ones if there
    would be more than about `count_max`. Returns at least one range for each non-empty segment. Costs a few look-ups
    for each span and each range, whatever the number of extents."""
    runs = [(piece, _runs(reading, piece)) for piece in stream_slice.segments if piece.segment.head < piece.stop]
    total = sum(run.size for _, of_piece in runs for run in of_piece)
    target = max(bytes_max, total // count_max + 1)
    return [each for piece, of_piece in runs for each in _cut(reading, piece, of_piece, target)]


def _runs(reading: Reading, piece: SegmentSlice) -> list[_SliceRun]:
    found = []
    for span in piece.spans:
        assert span.stop is not None
        start = _Place(span.start, _bytes_before(reading, span.log, span.start))
        stop = _Place(span.stop, max(_bytes_before(reading, span.log, span.stop), start.size))
        found.append(_SliceRun(span.log, start, stop, span.offset - span.start))
    return found


def _bytes_before(reading: Reading, log: LogId, position: int) -> int:
    # Counts up to the end of the extent that begins before the position, so a span's size may be off by an extent.
    extent = reading.extent_before(log, position)
    return 0 if extent is None else extent.size_end


def _cut(reading: Reading, piece: SegmentSlice, runs: Sequence[_SliceRun], target: int) -> Iterator[SegmentRange]:
    size = sum(run.size for run in runs)
    count = max(1, -(-size // target))
    edges = [_Place(piece.segment.head, 0)]
    for number in range(1, count):
        weight = size * number // count
        if weight <= edges[-1].size:  # the last extent reaches beyond it
            continue
        edge = _edge(reading, runs, weight, target // _SLACK)
        if edges[-1].position < edge.position < piece.stop:
            edges.append(edge)
    edges.append(_Place(piece.stop, size))
    for start, stop in pairwise(edges):
        yield SegmentRange(piece.segment.id, start.position, stop.position, stop.size - start.size)


def _edge(reading: Reading, runs: Sequence[_SliceRun], weight: int, slack: int) -> _Place:
    """The end of the extent that contains about byte `weight` of the segment: its offset, and the bytes before it."""
    before = 0
    for run in runs:
        if weight < before + run.size:
            place = _end(reading, run, run.start.size + weight - before, slack)
            return _Place(place.position + run.shift, before + place.size - run.start.size)
        before += run.size
    return _Place(runs[-1].stop.position + runs[-1].shift, before)


def _end(reading: Reading, run: _SliceRun, wanted: int, slack: int) -> _Place:
    """The end of the first extent of a run that has more than `wanted` bytes before its end, or of one within `slack`
    of it. Alternates between interpolation (as if all events had the same size) and bisection, so that the number of
    look-ups is logarithmic for every log."""
    low, high, halve = run.start, run.stop, False
    while low.position < high.position:
        width = high.position - low.position
        step = width // 2 if halve else width * (wanted - low.size) // max(high.size - low.size, 1)
        extent = reading.extent_before(run.log, low.position + min(max(step, 0), width - 1) + 1)
        if extent is None:
            break
        end = min(_Place(extent.stop, extent.size_end), high)
        if end.size <= wanted - slack:
            low = end
        elif end.size <= wanted + slack or extent.start <= low.position:
            return end
        else:
            start = _Place(extent.start, _bytes_before(reading, run.log, extent.start))
            if start.size <= wanted:
                return end
            high = start
        halve = not halve
    return high
