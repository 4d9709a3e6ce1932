"""The proof: every event of every closed window is in Spark's count or among the late events, and nothing else is.

Counted a second time, without Spark: the source stream is read with the store's own reader, and each event is put into
its windows by arithmetic that is written here anew, so that a mistake in the pipeline's own can't hide behind itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.cut import HEAD, StreamCut
from anabranch.store import Store

__all__ = ["Claim", "Proof", "WindowCount", "prove"]

LATE_WATERMARK: Final = "_watermark"

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Claim:
    """What is to be proved of one result stream: its rows hold a window's `opened`, `closed` and its number of
    `events`. Windows of `size_us` begin every `slide_us`, on the epoch's multiples."""

    source: str
    time: str
    target: str
    late: str
    size_us: int
    slide_us: int


@dataclass(frozen=True, slots=True)
class WindowCount:
    """One closed window, `start_us <= time < end_us`, counted by Spark, among the late, and in the store."""

    start_us: int
    end_us: int
    spark: int
    late: int
    store: int

    @property
    def ok(self) -> bool:
        """True if nothing is missing and nothing is counted twice."""
        return self.spark + self.late == self.store


@dataclass(frozen=True, slots=True)
class Proof:
    """The closed windows in order; how many are still `open`; the source's events that the pipeline has `read`, has yet
    to read (`unread`), and those of the read that have no time and so no window (`untimed`)."""

    claim: Claim
    windows: tuple[WindowCount, ...]
    open: int
    read: int
    unread: int
    untimed: int
    late: int

    @property
    def ok(self) -> bool:
        """True if every closed window is."""
        return all(window.ok for window in self.windows)


def prove(store: Store, claim: Claim, *, watermark_us: int, read_to: StreamCut) -> Proof:
    """Compare the two counts for every window whose end the pipeline's watermark has reached.

    `read_to` is the cut up to which the pipeline has read the source.
    """
    in_store, read, untimed = _count_source(store, claim, read_to)
    by_spark = _count_results(store, claim)
    late_events, late = _count_late(store, claim)
    # A window that Spark has given out counts as closed, whatever the watermark says: it must hold then, too.
    ends = {start: start + claim.size_us for start in (*in_store, *by_spark, *late)}
    closed = sorted(start for start, end in ends.items() if end <= watermark_us or start in by_spark)
    windows = tuple(WindowCount(start, ends[start], by_spark[start], late[start], in_store[start]) for start in closed)
    return Proof(
        claim,
        windows,
        open=len(ends) - len(closed),
        read=read,
        unread=store.streams.distance(claim.source, read_to).events,
        untimed=untimed,
        late=late_events,
    )


def window_starts(times: Times, claim: Claim) -> Iterator[Times]:
    """For each event the starts of all windows that it lies in, as arrays; -1 << 62 where there is none."""
    last = times // claim.slide_us * claim.slide_us
    for back in range(-(-claim.size_us // claim.slide_us)):
        starts = last - back * claim.slide_us
        yield np.where(starts + claim.size_us > times, starts, _NONE)


_NONE: Final = -1 << 62


def _tally(into: Counter[int], starts: Times) -> None:
    values, counts = np.unique(starts[starts != _NONE], return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        into[value] += count


def _count_source(store: Store, claim: Claim, read_to: StreamCut) -> tuple[Counter[int], int, int]:
    counts: Counter[int] = Counter()
    read = untimed = 0
    with store.reader(claim.source, start=HEAD, end=read_to, columns=[claim.time]) as reader:
        for batch in reader.batches():
            column = batch.column(claim.time)
            read += len(column)
            untimed += column.null_count
            for starts in window_starts(_micros(column.drop_null()), claim):
                _tally(counts, starts)
    return counts, read, untimed


def _count_results(store: Store, claim: Claim) -> Counter[int]:
    counts: Counter[int] = Counter()
    with store.reader(claim.target, start=HEAD, columns=["opened", "events"]) as reader:
        for batch in reader.batches():
            starts = _micros(batch.column("opened")).tolist()
            for start, events in zip(starts, batch.column("events").to_pylist(), strict=True):
                counts[start] += events
    return counts


def _count_late(store: Store, claim: Claim) -> tuple[int, Counter[int]]:
    """The late events, and for each window how many came when it was already closed."""
    counts: Counter[int] = Counter()
    events = 0
    if not store.streams.exists(claim.late):
        return events, counts
    with store.reader(claim.late, start=HEAD, columns=[claim.time, LATE_WATERMARK]) as reader:
        for batch in reader.batches():
            events += batch.num_rows
            times, watermarks = _micros(batch.column(claim.time)), _micros(batch.column(LATE_WATERMARK))
            for starts in window_starts(times, claim):
                _tally(counts, starts[starts + claim.size_us <= watermarks])
    return events, counts


def _micros(column: pa.Array) -> Times:
    return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)
