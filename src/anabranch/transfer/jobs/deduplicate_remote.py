"""Deduplication in other processes: tasks digest what is compared and find the repeats. The result is sent along with
the bundles, one bit per event.

Known repeats are looked up in the catalog here, once and in the order of preference, so the tasks find exactly what one
process finds (`deduplicate.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from anabranch.model.ids import LogId, StreamId
from anabranch.transfer.jobs.bundles import bundled
from anabranch.transfer.jobs.control import RunControl
from anabranch.transfer.jobs.deduplicate import ComparedRanges, Mask, digests
from anabranch.transfer.jobs.job_store import JobStore
from anabranch.transfer.jobs.known_repeats import KnownRepeats
from anabranch.transfer.jobs.range_reader import RangeReader
from anabranch.transfer.jobs.record import JobRange
from anabranch.transfer.jobs.row_digest import Words


@dataclass(frozen=True, slots=True)
class DigestTask:
    """Ranges of one stream that a task digests: a small value that can be sent to other processes. Its events have the
    ranks from `rank` on. `known` holds, for each range, the offsets of known repeats. The stream is in the job's store
    number `store`, or in its target if `moved` is false."""

    number: int
    stream: StreamId
    moved: bool
    ranges: tuple[JobRange, ...]
    known: tuple[tuple[tuple[int, int], ...], ...]
    columns: pa.Schema
    rank: int
    store: int = 0

    @property
    def events(self) -> int:
        """The number of ranks it covers."""
        return sum(range_.events for range_ in self.ranges)

    def digests(self, source: JobStore, target: JobStore) -> Iterator[tuple[int, tuple[Words, Words]]]:
        """Digests in batches, each with its first rank. Raises as `deduplicate.digests`."""
        range_reader = RangeReader(source if self.moved else target, self.stream, ())
        rank = self.rank
        for range_, known in zip(self.ranges, self.known, strict=True):
            for first, words in digests(range_reader, range_, known, self.columns):
                yield rank + first - range_.start, words
            rank += range_.events


@runtime_checkable
class DeduplicatingCarrier(Protocol):
    """A carrier that can also find repeats."""

    def compare_remotely(self, tasks: Sequence[DigestTask]) -> Mapping[int, bytes]:
        """Find the events that repeat one of a lower rank, among all that `tasks` digest. Returns them by the task's
        number, as `packed` bits; tasks without repeats are left out. Raises what digesting raises."""
        ...


class KeptRanges:
    """The kept events of a job's ranges, packed. A value that can be sent to other processes, for all ranges or
    some."""

    def __init__(self, stays: Mapping[LogId, bytes], repeats: int) -> None:
        self._stays = dict(stays)
        self.repeats = repeats

    def mask(self, range_: JobRange) -> Mask:
        """For each event of the range, whether it is kept."""
        return unpacked(self._stays[range_.log], range_.events)

    def of(self, ranges: Sequence[JobRange]) -> KeptRanges:
        """The kept events of these ranges."""
        return KeptRanges({range_.log: self._stays[range_.log] for range_ in ranges}, 0)


def compare_remotely(
    compared: Sequence[ComparedRanges], columns: pa.Schema, runner: DeduplicatingCarrier, control: RunControl
) -> KeptRanges:
    """Find the repeats in everything compared, given in the order of preference. Memory: one compressed bit for each
    event that is moved. Raises as `RangeMover.move`."""
    tasks: list[DigestTask] = []
    known, rank = KnownRepeats(), 0
    for looked in compared:
        for ranges in bundled(looked.ranges):
            control.check()
            edges = tuple(tuple(known.edges_of(looked.range_reader, range_)) for range_ in ranges)
            whose = looked.range_reader.stream, looked.moved
            task = DigestTask(len(tasks), *whose, tuple(ranges), edges, columns, rank, looked.store)
            tasks.append(task)
            rank += task.events
    found = runner.compare_remotely(tasks)
    control.check()
    stays: dict[LogId, bytes] = {}
    repeats = 0
    for task in tasks:
        if task.moved:
            whole = _stays(task, found.get(task.number))
            repeats += int((~whole).sum())
            first = 0
            for range_ in task.ranges:
                stays[range_.log] = packed(whole[first : first + range_.events])
                first += range_.events
    return KeptRanges(stays, repeats)


def packed(bits: Mask) -> bytes:
    """A bit for each event, compressed."""
    return zlib.compress(np.packbits(bits).tobytes(), 1)


def unpacked(data: bytes, count: int) -> Mask:
    """The inverse of `packed`."""
    bits: Mask = np.unpackbits(np.frombuffer(zlib.decompress(data), dtype=np.uint8), count=count).astype(np.bool_)
    return bits


def _stays(task: DigestTask, repeats: bytes | None) -> Mask:
    stays = np.ones(task.events, dtype=np.bool_) if repeats is None else ~unpacked(repeats, task.events)
    first = 0
    for range_, known in zip(task.ranges, task.known, strict=True):
        for start, stop in known:
            stays[first + start - range_.start : first + stop - range_.start] = False
        first += range_.events
    return stays
