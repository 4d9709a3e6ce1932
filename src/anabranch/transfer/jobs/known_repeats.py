"""Repeats that are known without reading their bytes: views of log positions that were viewed before, and messages with
the same columns, rows, size and checksum as an earlier one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from anabranch import limits
from anabranch.core.compaction import ARROW
from anabranch.model.ids import LogId
from anabranch.transfer.jobs.range_reader import RangeReader, RangeRun
from anabranch.transfer.jobs.record import JobRange

Edges = tuple[int, int]


class KnownRepeats:
    """Finds known repeats with catalog reads alone. Memory: the edges of the viewed positions, and at most
    `limits.KNOWN_MESSAGES_MAX` messages."""

    def __init__(self) -> None:
        self._viewed: dict[tuple[int, LogId], list[Edges]] = {}  # by catalog and log: disjoint, in order
        self._messages: dict[tuple[object, ...], None] = {}

    def edges_of(self, range_reader: RangeReader, range_: JobRange) -> list[Edges]:
        """The offsets of the next range, half-open and in order, that repeat a range passed before. Ranges come in the
        order of preference. Raises as `RangeReader.runs`."""
        found: list[Edges] = []
        for run in range_reader.runs(range_, range_.start):
            piece = run.piece
            viewed = self._viewed.setdefault((id(range_reader.catalog), piece.extent.log), [])
            for start, stop, fresh in parts_of(viewed, piece.start, piece.stop):
                part = run._replace(piece=piece._replace(start=start, stop=stop))
                if not fresh or self._has_message(part):
                    found.append((start + piece.shift, stop + piece.shift))
            _include(viewed, piece.start, piece.stop)
        return found

    def _has_message(self, run: RangeRun) -> bool:
        extent = run.piece.extent
        if extent.encoding != ARROW:
            return False
        count = run.piece.stop - run.piece.start
        message = (run.piece.columns, extent.checksum, extent.location.length, run.piece.row, count)
        if message in self._messages:
            return True
        if len(self._messages) < limits.KNOWN_MESSAGES_MAX:
            self._messages[message] = None
        return False


def parts_of(viewed: Sequence[Edges], start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    """Split `start <= position < stop` into parts that lie wholly within what was viewed, or wholly outside (True)."""
    position = start
    for low, high in viewed:
        if high <= position or low >= stop:
            continue
        if position < low:
            yield position, low, True
        yield max(low, position), min(high, stop), False
        position = min(high, stop)
    if position < stop:
        yield position, stop, True


def _include(viewed: list[Edges], start: int, stop: int) -> None:
    """Add positions to the viewed ones, merging neighbours."""
    apart = [each for each in viewed if each[1] < start or each[0] > stop]
    touching = [each for each in viewed if not (each[1] < start or each[0] > stop)]
    low = min([start, *(each[0] for each in touching)])
    high = max([stop, *(each[1] for each in touching)])
    viewed[:] = sorted([*apart, (low, high)])
