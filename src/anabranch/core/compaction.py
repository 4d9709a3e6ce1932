"""Which extents become which tier-2 files. Sizes are *logical* bytes, which compaction never changes.

A log is looked at as runs: neighbouring extents of tier 1, and of tier 2 as long as they are small. A run of at least
`bytes_min` is cut into files of its own. What is smaller is written once it is old or in many pieces; such pieces of
logs with equal columns share files, each as whole row groups.

Small files of one log are merged again, an older one only when what follows it is at least as large. So a slow log's
byte is rewritten a number of times that grows with the logarithm of `bytes_min`, not with the number of passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from anabranch import limits
from anabranch.model.append import Bounds
from anabranch.model.ids import LogId, Micros, StreamId
from anabranch.model.stream import Extent

ARROW = "arrow"
PARQUET = "parquet"
GONE = "gone"  # nobody viewed these events any more: their bytes were collected (see `core.holes`)


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """When a run is worth a file, and how large a file becomes (logical bytes).

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
        # Else a run could be cut into files that are small again, and each pass would rewrite them.
        assert 0 < 2 * self.bytes_min <= self.bytes_max


@dataclass(frozen=True, slots=True)
class LogExtents:
    """Neighbouring extents of a log, in order, with the logical bytes of each. `columns` is the schema the rows are to
    be written with (any value that is equal for equal columns), `version` its number in the log's stream. `attached`
    are the keys of files that belong to somebody else, and stay what they are."""

    log: LogId
    stream: StreamId
    columns: bytes
    version: int
    extents: tuple[Extent, ...]
    sizes: tuple[int, ...]
    attached: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class FilePart:
    """Neighbouring extents of one log that become one extent: whole row groups of a file."""

    log: LogId
    stream: StreamId
    columns: bytes
    version: int
    extents: tuple[Extent, ...]
    size: int

    @property
    def start(self) -> int:
        """Its first position in the log."""
        return self.extents[0].start

    @property
    def stop(self) -> int:
        """The position behind its last."""
        return self.extents[-1].stop


@dataclass(frozen=True, slots=True)
class FilePlan:
    """One file to be written; its parts share their columns and stand in the order of their rows."""

    parts: tuple[FilePart, ...]

    @property
    def size(self) -> int:
        """Logical bytes."""
        return sum(part.size for part in self.parts)


def plan_compaction(logs: Iterable[LogExtents], policy: CompactionPolicy, *, now: Micros) -> list[FilePlan]:
    """The files to write. Every extent is in at most one; a file of one extent that is in tier 2 is never planned.

    A file holds between `bytes_min` and `bytes_max`, but less where there is not more, and more where its extents are
    too large to be divided so: at most `bytes_min` and one extent.
    """
    files: list[FilePlan] = []
    small: list[FilePart] = []
    for log in logs:
        for first, stop in _runs(log, policy):
            if sum(log.sizes[first:stop]) >= policy.bytes_min:
                pieces = _cut(log.sizes, first, stop, policy)
                files += [FilePlan((_part(log, *piece),)) for piece in pieces if _changes(log, *piece)]
            else:
                first = _worth(log, first, stop, policy, now)
                if first < stop:
                    small.append(_part(log, first, stop))
    return files + _pack(small, policy)


def _runs(log: LogExtents, policy: CompactionPolicy) -> Iterator[tuple[int, int]]:
    """Index ranges of neighbouring extents that may be rewritten."""
    first = 0
    for index, (extent, size) in enumerate(zip(log.extents, log.sizes, strict=True)):
        whole = extent.encoding == PARQUET and (size >= policy.bytes_min or extent.key in log.attached)
        done = whole or extent.encoding == GONE
        gap = index > first and log.extents[index - 1].stop != extent.start
        if (done or gap) and first < index:
            yield first, index
        if done or gap:
            first = index + 1 if done else index
    if first < len(log.extents):
        yield first, len(log.extents)


def _cut(sizes: Sequence[int], first: int, stop: int, policy: CompactionPolicy) -> Iterator[tuple[int, int]]:
    """A run of at least `bytes_min` in pieces of about equal bytes; all but the last are at least `bytes_min`."""
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


def _worth(log: LogExtents, first: int, stop: int, policy: CompactionPolicy, now: Micros) -> int:
    """Where, in a run below `bytes_min`, the part that is worth writing begins; `stop` where none is."""
    fresh = [index for index in range(first, stop) if log.extents[index].encoding == ARROW]
    if not fresh:
        begin = stop - 1
    elif policy.force or len(fresh) >= policy.extents_min or _old(log.extents[fresh[0]], policy, now):
        begin = fresh[0]
    else:
        return stop
    size = sum(log.sizes[begin:stop])
    while begin > first and (policy.force or log.sizes[begin - 1] <= size):
        begin -= 1
        size += log.sizes[begin]
    return begin if _changes(log, begin, stop) else stop


def _old(extent: Extent, policy: CompactionPolicy, now: Micros) -> bool:
    return extent.appended.low is not None and extent.appended.low <= now - policy.age_us


def _pack(small: list[FilePart], policy: CompactionPolicy) -> list[FilePlan]:
    """Files shared by parts with equal columns, those of one stream next to each other."""
    files: list[FilePlan] = []
    held: list[FilePart] = []
    size = 0
    for part in sorted(small, key=lambda p: (p.columns, p.stream, p.log, p.start)):
        full = size + part.size > policy.bytes_max or len(held) >= policy.parts_max
        if held and (full or part.columns != held[0].columns):
            files.append(FilePlan(tuple(held)))
            held, size = [], 0
        held.append(part)
        size += part.size
    if held:
        files.append(FilePlan(tuple(held)))
    return files


def _part(log: LogExtents, first: int, stop: int) -> FilePart:
    size = sum(log.sizes[first:stop])
    return FilePart(log.log, log.stream, log.columns, log.version, log.extents[first:stop], size)


def joined(bounds: Iterable[Bounds]) -> Bounds:
    """The least and the greatest time of several extents; None where none has any."""
    known = [(each.low, each.high) for each in bounds if each.low is not None and each.high is not None]
    if not known:
        return Bounds(None, None)
    return Bounds(Micros(min(low for low, _ in known)), Micros(max(high for _, high in known)))
