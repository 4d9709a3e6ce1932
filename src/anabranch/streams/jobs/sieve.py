"""Leaving out repeats while streams are stitched: which events of the sources equal one that is preferred to them.

All sources are looked at once, in the order of preference, before anything is moved. What is known to be a repeat is not
fetched: a range that views the very positions of a log that an earlier one views, or whose message has the place, the
size and the checksum of an earlier one's. The answer depends on the sources' events alone, so a job that is resumed
finds it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.core import codec
from anabranch.core.row_digest import row_digests
from anabranch.log.fetch import name_of
from anabranch.log.watch import Watch
from anabranch.model.ids import LogId
from anabranch.runtime.tasks import Tasks
from anabranch.streams.jobs.cargo import Cargo, Run
from anabranch.streams.jobs.control import Control
from anabranch.streams.jobs.row import JobRow, Plan, Range
from anabranch.streams.jobs.seen import Seen

Mask = np.ndarray[Any, np.dtype[np.bool_]]

_DIGESTS_MAX: Final = 262_144  # messages whose checksums are remembered


class Sieve:
    """Tells for each range which of its events stay. `look` is called for all ranges, in the order of preference, then
    `settle`."""

    def __init__(self, seen: Seen, columns: Sequence[str]) -> None:
        self._seen = seen
        self._columns = tuple(columns)
        self._bases: dict[LogId, int] = {}  # the rank of a range's first event, by the log that it is written to
        self._rank = 0
        self._viewed: dict[LogId, list[tuple[int, int]]] = {}  # of the sources' logs, disjoint and in order
        self._messages: dict[tuple[object, ...], None] = {}
        self._known: dict[LogId, list[tuple[int, int]]] = {}  # ranks that need no look, by the range's log
        self.skipped = 0
        self.repeats = 0

    def look(self, cargo: Cargo, range_: Range) -> None:
        """Digest the events of the next range, those that are not known to be repeats."""
        self._bases[range_.log] = self._rank
        for run in cargo.runs(range_, range_.start):
            self._look(cargo, run)
        self._rank += range_.events

    @property
    def looked(self) -> int:
        """How many events it knows of."""
        return self._rank

    def settle(self) -> None:
        """Find the repeats."""
        self.repeats = self._seen.settle() + self.skipped

    def mask(self, range_: Range) -> Mask:
        """For each event of the range, whether it stays."""
        base = self._bases[range_.log]
        stays = np.ones(range_.events, dtype=np.bool_)
        stays[self._seen.repeats(base, base + range_.events) - base] = False
        for first, stop in self._known.get(range_.log, ()):
            stays[first - base : stop - base] = False
        return stays

    def close(self) -> None:
        """Give up what it keeps on disk."""
        self._seen.close()

    def _look(self, cargo: Cargo, run: Run) -> None:
        piece = run.piece
        rank = self._rank + run.at
        for start, stop, fresh in _split(self._viewed.setdefault(piece.extent.log, []), piece.start, piece.stop):
            part = run._replace(piece=piece._replace(start=start, stop=stop))
            first = rank + start - piece.start
            if not fresh or self._has_message(part):
                self._known.setdefault(run.range.log, []).append((first, first + stop - start))
                self.skipped += stop - start
            else:
                for batch in _batches(cargo, part):
                    self._seen.add(row_digests(_chosen(batch, self._columns)), first)
                    first += batch.num_rows
        _include(self._viewed[piece.extent.log], piece.start, piece.stop)

    def _has_message(self, run: Run) -> bool:
        extent = run.piece.extent
        if extent.encoding != "arrow":
            return False
        row = extent.place.row + run.piece.start - extent.start
        count = run.piece.stop - run.piece.start
        message = (run.piece.columns, extent.checksum, extent.place.length, row, count)
        if message in self._messages:
            return True
        if len(self._messages) < _DIGESTS_MAX:
            self._messages[message] = None
        return False


def preferred(row: JobRow) -> list[int]:
    """The numbers of a job's sources in the order in which they are read: those of `prefer`, then the others."""
    first = [int(each) for each in row.options.get("prefer", ())]
    return [*first, *(number for number in range(len(row.parts)) if number not in first)]


def sieve_of(
    row: JobRow, sources: Sequence[tuple[Cargo, Plan]], control: Control, tasks: Tasks, progress: Watch
) -> Sieve:
    """Look at all sources, given in the order of preference; `progress` hears of events. Raises as `Mover.move`."""
    sieve = Sieve(Seen(tasks), row.options["deduplicate"])
    try:
        for cargo, plan in sources:
            for range_ in plan.ranges:
                control.check()
                sieve.look(cargo, range_)
                progress("compare", sieve.looked, row.events)
        sieve.settle()
    except BaseException:
        sieve.close()
        raise
    return sieve


def sifted(runs: Iterator[Run], mask: Mask, reached: int) -> Iterator[Run]:
    """The runs of a range with what stays of them, at the positions that they get, from position `reached` on."""
    for run in runs:
        first = run.piece.start + run.piece.shift - run.range.start
        stays = mask[first : first + run.events]
        count = int(stays.sum())
        if count:
            keep = None if count == len(stays) else pa.array(stays)
            yield run._replace(at=reached, keep=keep, size=run.size * count // len(stays))
        reached += count


def offset_behind(range_: Range, mask: Mask, length: int) -> int:
    """The offset behind the `length`th event that stays; the range's end where no more of them follow."""
    stays = np.flatnonzero(mask)
    if length >= len(stays):
        return range_.stop
    return range_.start + (int(stays[length - 1]) + 1 if length else 0)


def _batches(cargo: Cargo, run: Run) -> Iterator[pa.RecordBatch]:
    piece, extent = run.piece, run.piece.extent
    row, count = extent.place.row + piece.start - extent.start, piece.stop - piece.start
    message = cargo.fetcher.message(extent)
    if message is None:
        for batch, _ in cargo.fetcher.parquet(extent, row, count, piece.columns):
            yield batch
        return
    yield codec.decode(message, piece.columns, key=name_of(extent)).slice(row, count)


def _chosen(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """The columns that are compared; one that an older schema lacks is null."""
    have = set(batch.schema.names)
    nulls = pa.nulls(batch.num_rows)
    return pa.record_batch([batch.column(name) if name in have else nulls for name in columns], names=list(columns))


def _split(viewed: Sequence[tuple[int, int]], start: int, stop: int) -> Iterator[tuple[int, int, bool]]:
    """`start <= position < stop` in pieces that lie wholly in what was viewed, or wholly outside (True)."""
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


def _include(viewed: list[tuple[int, int]], start: int, stop: int) -> None:
    """Add positions to what was viewed; neighbours become one."""
    apart = [each for each in viewed if each[1] < start or each[0] > stop]
    touching = [each for each in viewed if not (each[1] < start or each[0] > stop)]
    low = min([start, *(each[0] for each in touching)])
    high = max([stop, *(each[1] for each in touching)])
    viewed[:] = sorted([*apart, (low, high)])
