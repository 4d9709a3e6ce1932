"""Plans which extents are rewritten as which tier-2 files. Sizes are *logical* bytes, which compaction never changes.

A log is divided into runs: adjacent extents of tier 1, and of tier 2 if they are small. A run of at least `bytes_min`
is divided into files of its own. A smaller run is written once it is old or has many extents; such parts, from logs
with equal columns, share files, each as whole row groups.

Small files of one log are merged again; an older one only if what follows it is at least as large. So the number of
times that a byte of a slow log is rewritten grows with the logarithm of `bytes_min`, not with the number of passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anabranch import limits
from anabranch.model.append import TimeBounds
from anabranch.model.ids import LogId, Micros, StreamId
from anabranch.model.stream import Extent

ARROW = "arrow"
PARQUET = "parquet"
GONE = "gone"  # no segment views these events: their bytes were collected (see `core.holes`)


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a run is compacted to a file, and how large a file becomes (logical bytes).

    A run below `bytes_min` waits until it holds `extents_min` tier-1 extents, or one appended over `age_us` ago.
    `force` takes every tier-1 extent, and merges all small files.
    """

    bytes_min: int = limits.PARQUET_BYTES_MIN
    bytes_max: int = limits.PARQUET_BYTES_MAX
    extents_min: int = limits.COMPACT_EXTENTS_MIN
    age_us: int = limits.COMPACT_AGE_US
    parts_max: int = limits.PARQUET_PARTS_MAX
    force: bool = False

    def __post_init__(self) -> None:
        # Otherwise a run could be divided into files that are small again, and each pass would rewrite them.
        assert 0 < 2 * self.bytes_min <= self.bytes_max


@dataclass(frozen=True, slots=True)
class LogExtents:
    """Adjacent extents of a log, in order, with the logical bytes of each. `columns` is the schema to write the rows
    with (any value that is equal for equal columns), `version` its number in the log's stream. `attached` are the keys
    of files that are not owned by the store and are left unchanged."""

    log: LogId
    stream: StreamId
    columns: bytes
    version: int
    extents: tuple[Extent, ...]
    sizes: tuple[int, ...]
    attached: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FilePart:
    """Adjacent extents of one log that become one extent: whole row groups of a file."""

    log: LogId
    stream: StreamId
    columns: bytes
    version: int
    extents: tuple[Extent, ...]
    size: int

    @property
    def start(self) -> int:
        """The part's first position in the log."""
        return self.extents[0].start

    @property
    def stop(self) -> int:
        """The position after the part's last event."""
        return self.extents[-1].stop


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file to write. Its parts have the same columns and are in the order of their rows."""

    parts: tuple[FilePart, ...]

    @property
    def size(self) -> int:
        """Logical bytes."""
        return sum(part.size for part in self.parts)


def plan_compaction(logs: Iterable[LogExtents], policy: CompactionPolicy, *, now: Micros) -> list[FilePlan]:
    """The files to write. Every extent is in at most one file; a single tier-2 extent is never planned as a file.

    A file holds between `bytes_min` and `bytes_max`. It holds less if there are no more extents to pack, and
    more if its extents are too large to be divided that way: at most `bytes_min` and one extent.
    """
    files: list[FilePlan] = []
    small: list[FilePart] = []
    for log in logs:
        for first, stop in _runs(log, policy):
            if sum(log.sizes[first:stop]) >= policy.bytes_min:
                parts = _cut(log.sizes, first, stop, policy)
                files += [FilePlan((_part(log, *part),)) for part in parts if _changes(log, *part)]
            else:
                first = _first_worth_writing(log, first, stop, policy, now)
                if first < stop:
                    small.append(_part(log, first, stop))
    return files + _pack(small, policy)


def _runs(log: LogExtents, policy: CompactionPolicy) -> Iterator[tuple[int, int]]:
    """Index ranges of adjacent extents that may be rewritten."""
    first = 0
    for index, (extent, size) in enumerate(zip(log.extents, log.sizes, strict=True)):
        large_enough = extent.encoding == PARQUET and (size >= policy.bytes_min or extent.key in log.attached)
        skipped = large_enough or extent.encoding == GONE
        gap = index > first and log.extents[index - 1].stop != extent.start
        if (skipped or gap) and first < index:
            yield first, index
        if skipped or gap:
            first = index + 1 if skipped else index
    if first < len(log.extents):
        yield first, len(log.extents)


def _cut(sizes: Sequence[int], first: int, stop: int, policy: CompactionPolicy) -> Iterator[tuple[int, int]]:
    """Divide a run of at least `bytes_min` into parts of about equal bytes; all but the last are at least
    `bytes_min`."""
    total = sum(sizes[first:stop])
    target = total / -(-total // policy.bytes_max)
    size = 0
    for index in range(first, stop):
        if size >= policy.bytes_min and (size >= target or size + sizes[index] > policy.bytes_max):
            yield first, index
            first, size = index, 0
        size += sizes[index]
    yield first, stop


def _changes(log: LogExtents, first: int, stop: int) -> bool:
    return stop - first > 1 or log.extents[first].encoding != PARQUET


def _first_worth_writing(log: LogExtents, first: int, stop: int, policy: CompactionPolicy, now: Micros) -> int:
    """In a run below `bytes_min`, the index where the part to be written begins; `stop` if there is none."""
    new_extents = [index for index in range(first, stop) if log.extents[index].encoding == ARROW]
    if not new_extents:
        begin = stop - 1
    elif policy.force or len(new_extents) >= policy.extents_min or _is_old(log.extents[new_extents[0]], policy, now):
        begin = new_extents[0]
    else:
        return stop
    size = sum(log.sizes[begin:stop])
    while begin > first and (policy.force or log.sizes[begin - 1] <= size):
        begin -= 1
        size += log.sizes[begin]
    return begin if _changes(log, begin, stop) else stop


def _is_old(extent: Extent, policy: CompactionPolicy, now: Micros) -> bool:
    return extent.appended.low is not None and extent.appended.low <= now - policy.age_us


def _pack(small: list[FilePart], policy: CompactionPolicy) -> list[FilePlan]:
    """Files shared by parts with equal columns, with parts of one stream next to each other."""
    files: list[FilePlan] = []
    batch: list[FilePart] = []
    size = 0
    for part in sorted(small, key=lambda p: (p.columns, p.stream, p.log, p.start)):
        full = size + part.size > policy.bytes_max or len(batch) >= policy.parts_max
        if batch and (full or part.columns != batch[0].columns):
            files.append(FilePlan(tuple(batch)))
            batch, size = [], 0
        batch.append(part)
        size += part.size
    if batch:
        files.append(FilePlan(tuple(batch)))
    return files


def _part(log: LogExtents, first: int, stop: int) -> FilePart:
    size = sum(log.sizes[first:stop])
    return FilePart(log.log, log.stream, log.columns, log.version, log.extents[first:stop], size)


def merged_bounds(bounds: Iterable[TimeBounds]) -> TimeBounds:
    """The smallest and the greatest time of several extents; both None if no extent has times."""
    times = [(each.low, each.high) for each in bounds if each.low is not None and each.high is not None]
    if not times:
        return TimeBounds(None, None)
    return TimeBounds(Micros(min(low for low, _ in times)), Micros(max(high for _, high in times)))
